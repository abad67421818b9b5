package tribunal

// noCopy has go vet report copies of what contains it.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// usable returns why the transaction cannot be used: Begin did not return it. A copy shares some of its state with its
// original, and neither has all writes, so the original cannot be committed any more either.
func (t *Transaction) usable() error {
	switch t.self {
	case t:
		return nil
	case nil:
		return misuse("the transaction was not begun: Begin, BeginLocal and Run return one")
	}
	err := misuse("the transaction is a copy: use the pointer that Begin, BeginLocal or Run returned")
	t.self.fail(err)
	return err
}

// errShared is the error of a call while another one is under way.
var errShared = misuse("the transaction is used by two goroutines at the same time: have one wait for the other; " +
	"GetMany reads several rows at once")

// enter begins a call of the transaction. It returns why there must be none: Begin did not return it, or another call
// is under way, whose reads and writes would be lost or mixed with those of this one. Then it cannot be committed any
// more.
func (t *Transaction) enter() error {
	if err := t.usable(); err != nil {
		t.fail(err)
		return err
	}
	if !t.busy.CompareAndSwap(false, true) {
		t.shared.Store(true)
		return errShared
	}
	return nil
}

// leave ends a call.
func (t *Transaction) leave() { t.busy.Store(false) }

// change is a call that adds to what the commit contains of a store. It returns no error, but keeps it.
func (t *Transaction) change(store string, do func() error) {
	if t.enter() != nil {
		return
	}
	defer t.leave()
	err := t.closing.err()
	if err == nil {
		err = checkText("name of a store", store)
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		t.fail(err)
	}
}
