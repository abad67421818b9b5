package tribunal

import (
	"context"
	"errors"
	"testing"
)

// If two goroutines use a transaction, its commit may lack a read, whose conflict would not be found.
func TestATransactionThatTwoGoroutinesUseAtTheSameTimeIsNotCommitted(t *testing.T) {
	ctx := t.Context()
	for name, use := range map[string]func(*Transaction) error{
		"Get":     func(txn *Transaction) error { _, err := txn.Get(ctx, "kv", "a/2"); return err },
		"GetMany": func(txn *Transaction) error { _, err := txn.GetMany(ctx, "kv", []string{"a/2"}); return err },
		"Scan":    func(txn *Transaction) error { _, err := txn.Scan(ctx, "kv", "", "", 1); return err },
		"Put":     func(txn *Transaction) error { txn.Put("kv", "a", 1); return txn.Err() },
		"Delete":  func(txn *Transaction) error { txn.Delete("kv", "a"); return txn.Err() },
		"Observe": func(txn *Transaction) error { txn.Observe("kv", "a", 1); return txn.Err() },
		"Commit":  func(txn *Transaction) error { _, err := txn.Commit(ctx); return err },
	} {
		c := newReadingCrowd(t, once)
		txn := c.client.BeginLocal("")
		read := make(chan *Row)
		go func() {
			row, err := txn.Get(context.Background(), "kv", "a/1")
			if err != nil {
				t.Error(err)
			}
			read <- row
		}()
		request := <-c.arrived
		var misuse *Misuse
		if err := use(txn); !errors.As(err, &misuse) {
			t.Errorf("%s: %v", name, err)
		}
		request.read()
		if row := <-read; row == nil || string(row.Value) != "1" {
			t.Error(name, row)
		}
		if _, err := txn.Commit(ctx); !errors.As(err, &misuse) {
			t.Errorf("Commit after %s: %v", name, err)
		}
	}
}

func TestATransactionMayBeHandedToAnotherGoroutine(t *testing.T) {
	c := newReadingCrowd(t, once)
	txn := c.client.BeginLocal("")
	for range 3 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			txn.Add("kv", "a", 1)
		}()
		<-done
	}
	if err := txn.Err(); err != nil || string(txn.writes[rowName{"kv", "a"}].value) != "3" {
		t.Error(err, txn.writes)
	}
}
