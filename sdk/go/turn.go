package tribunal

// noCopy makes go vet report copies of a struct that contains it.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// usable returns an error if the transaction cannot be used: Begin did not return it. A copy shares some of its state
// with its original, and neither has all writes, so the original can no longer be committed either.
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

// errShared is the error of a call while another one is in progress.
var errShared = misuse("the transaction is used by two goroutines at the same time: have one wait for the other; " +
	"GetMany reads several rows at once")

// enter begins a call of the transaction. It returns an error if Begin did not return the transaction, or if another
// call is in progress, whose reads and writes would be lost or mixed with this one's. The transaction can then no
// longer be committed.
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

// change makes a call that adds to the commit's content in a store. It keeps the error instead of returning it.
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
