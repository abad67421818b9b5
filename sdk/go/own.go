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
