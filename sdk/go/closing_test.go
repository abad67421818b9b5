package tribunal

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// lateUses has each kind of read and write, of rows that a transaction has not read.
func lateUses(ctx context.Context) map[string]func(*Transaction) error {
	return map[string]func(*Transaction) error{
		"Insert":         func(txn *Transaction) error { txn.Insert("kv", "late", 1); return txn.Err() },
		"Update":         func(txn *Transaction) error { txn.Update("kv", "late", 1); return txn.Err() },
		"Put":            func(txn *Transaction) error { txn.Put("kv", "late", 1); return txn.Err() },
		"Delete":         func(txn *Transaction) error { txn.Delete("kv", "late"); return txn.Err() },
		"Add":            func(txn *Transaction) error { txn.Add("kv", "late", 1); return txn.Err() },
		"AddOr":          func(txn *Transaction) error { txn.AddOr("kv", "late", 1, 0); return txn.Err() },
		"Observe":        func(txn *Transaction) error { txn.Observe("kv", "late", 1); return txn.Err() },
		"ObserveRange":   func(txn *Transaction) error { txn.ObserveRange("kv", "", ""); return txn.Err() },
		"Get":            func(txn *Transaction) error { _, err := txn.Get(ctx, "kv", "late"); return err },
		"Get of a fetch": func(txn *Transaction) error { _, err := txn.Get(ctx, "kv", "ahead"); return err },
		"GetMany":        func(txn *Transaction) error { _, err := txn.GetMany(ctx, "kv", []string{"late"}); return err },
		"Scan":           func(txn *Transaction) error { _, err := txn.Scan(ctx, "kv", "", "", 1); return err },
	}
}

func isRefused(err error, text string) bool {
	var misuse *Misuse
	return errors.As(err, &misuse) && strings.Contains(err.Error(), text)
}

// withPut begins a transaction with one write, one row read, and one row prefetched.
func withPut(client *Client) *Transaction {
	txn := client.BeginLocal("")
	txn.Put("kv", "a", 1)
	txn.reads[rowName{"kv", "read"}] = seen{version: 5, value: []byte("1")}
	txn.readOrder = append(txn.readOrder, rowName{"kv", "read"})
	txn.fetched[rowName{"kv", "ahead"}] = seen{version: 5, value: []byte("1")}
	return txn
}

// reads checks that the transaction's own reads and writes remain readable.
func reads(t *testing.T, txn *Transaction) {
	t.Helper()
	rows, err := txn.GetMany(t.Context(), "kv", []string{"a", "read"})
	if err != nil || string(rows[0].Value) != "1" || string(rows[1].Value) != "1" {
		t.Error(rows, err)
	}
}

// A write during a commit that does not contain it would be in no commit at all.
func TestATransactionTakesNoReadsAndWritesDuringItsCommitAndAfterTheVerdict(t *testing.T) {
	url, arrived := holding(t)
	client, err := New(url, Options{Timeout: time.Minute, Retry: once.Retry})
	if err != nil {
		t.Fatal(err)
	}
	for name, use := range lateUses(t.Context()) {
		for _, line := range []func(string) string{wonLine, lostLine} {
			during, after := withPut(client), withPut(client)
			for _, txn := range []*Transaction{during, after} {
				ended := make(chan error)
				go func() {
					_, err := txn.Commit(context.Background())
					ended <- err
				}()
				request := <-arrived
				if txn == during {
					if err := use(txn); !isRefused(err, "under way") {
						t.Fatalf("%s during the commit: %v", name, err)
					}
					reads(t, txn)
				}
				request.with(200, line(txn.ID()))
				if err := <-ended; err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := use(after); !isRefused(err, "already") {
				t.Fatalf("%s after the verdict: %v", name, err)
			}
			reads(t, after)
		}
	}
}

func TestARepeatedCommitHasTheSameBody(t *testing.T) {
	service := startEndpoint(t, func(_ string, ids []string, _ int) (int, string) { return 200, wonLine(ids[0]) })
	client, err := New(service.url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	txn := withPut(client)
	for range 2 {
		verdict, err := txn.Commit(t.Context())
		if won, ok := verdict.(*Committed); err != nil || !ok || won.TxnID != txn.ID() {
			t.Error(verdict, err)
		}
		// A refused read does not count as read.
		if _, err := txn.Get(t.Context(), "kv", "late"); !isRefused(err, "has committed already") {
			t.Error(err)
		}
	}
	if asked := service.asked(); len(asked) != 2 || asked[0] != asked[1] {
		t.Error(asked)
	}
}

func TestACommitThatMayHaveBeenDecidedLeavesTheTransactionClosed(t *testing.T) {
	mismatch := problemText(422, "body_mismatch")
	for name, one := range map[string]struct {
		script endpointScript
		open   bool
	}{
		"unavailable": {func(string, []string, int) (int, string) { return 503, problemText(503, "overloaded") }, true},
		"a mistake":   {func(string, []string, int) (int, string) { return 404, problemText(404, "unknown_store") }, true},
		"a mismatch":  {func(string, []string, int) (int, string) { return 422, mismatch }, false},
		"unknown": {func(kind string, _ []string, _ int) (int, string) {
			if kind == "status" {
				return 404, problemText(404, "x")
			}
			return isLost, ""
		}, false},
		// Even if a repetition is certainly not accepted.
		"unknown, then unavailable": {func(kind string, _ []string, before int) (int, string) {
			switch {
			case kind == "status":
				return 404, problemText(404, "x")
			case before == 0:
				return 504, problemText(504, "outcome_unknown")
			}
			return 503, problemText(503, "overloaded")
		}, false},
	} {
		service := startEndpoint(t, one.script)
		client, err := New(service.url, Options{})
		if err != nil {
			t.Fatal(err)
		}
		txn := withPut(client)
		for range 2 {
			if _, err := txn.Commit(t.Context()); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		txn.Put("kv", "b", 1)
		if err := txn.Err(); one.open && err != nil || !one.open && !isRefused(err, "not known") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A commit whose context ended before it was sent was not decided either.
	client, err := New("http://127.0.0.1:1", Options{})
	if err != nil {
		t.Fatal(err)
	}
	txn := withPut(client)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = txn.Commit(cancelled)
	if txn.Put("kv", "b", 1); !errors.Is(err, context.Canceled) || txn.Err() != nil {
		t.Error(err, txn.Err())
	}
}

func TestATransactionIsNotOpenedWhileAnotherCommitOfItIsUnderWay(t *testing.T) {
	url, arrived := holding(t)
	client, err := New(url, Options{NoCoalesce: true})
	if err != nil {
		t.Fatal(err)
	}
	txn, ended := withPut(client), make(chan error)
	var requests []held
	for range 2 {
		go func() {
			_, err := txn.Commit(context.Background())
			ended <- err
		}()
		requests = append(requests, <-arrived)
	}
	requests[0].with(503, problemText(503, "overloaded"))
	<-ended
	if _, err := txn.Get(t.Context(), "kv", "late"); !isRefused(err, "under way") {
		t.Error(err)
	}
	requests[1].with(503, problemText(503, "overloaded"))
	<-ended
	if txn.Put("kv", "b", 1); txn.Err() != nil {
		t.Error(txn.Err())
	}
}

func TestATransactionOfARunTakesNoReadsAndWritesOnceTheWorkHasReturned(t *testing.T) {
	var kept *Transaction
	use := func() error { _, err := kept.Get(t.Context(), "kv", "late"); return err }
	service := newScripted(t, func(kind string, before int) (int, string) {
		switch {
		case kind == "begin":
			return begunReply(before, 7)
		case before == 0:
			// Even between two requests of the commit.
			return overloadedReply()
		}
		if err := use(); !isRefused(err, "the work of Run has returned") {
			t.Error(err)
		}
		if before == 1 {
			return abortedReply("read_conflict")
		}
		return committedReply(9)
	}, httptest.NewServer)
	client, attempts := service.client(t, Options{}), []*Transaction{}
	_, err := client.Run(t.Context(), BeginOptions{}, func(_ context.Context, txn *Transaction) error {
		kept, attempts = txn, append(attempts, txn)
		txn.Put("kv", "a", 1)
		return nil
	})
	if err != nil || len(attempts) != 2 {
		t.Fatal(err, len(attempts))
	}
	for at, status := range []string{"aborted", "committed"} {
		attempts[at].Put("kv", "late", 1)
		if err := attempts[at].Err(); !isRefused(err, "has "+status) {
			t.Errorf("attempt %d: %v", at, err)
		}
	}
	failed := errors.New("failed")
	_, err = client.Run(t.Context(), BeginOptions{}, func(_ context.Context, txn *Transaction) error {
		kept = txn
		return failed
	})
	if err != failed || !isRefused(use(), "the work of Run has returned") {
		t.Error(err, use())
	}
}

func TestAnAbortEndsTheTransactionAndItsReads(t *testing.T) {
	c := newReadingCrowd(t, once)
	txn, read := c.client.BeginLocal(""), make(chan error)
	go func() {
		_, err := txn.Get(context.Background(), "kv", "a/1")
		read <- err
	}()
	request := <-c.arrived
	aborted := make(chan error)
	go func() {
		_, err := txn.Abort(context.Background())
		aborted <- err
	}()
	abort := <-c.arrived
	abort.with(200, lostLine(txn.ID()))
	if err := <-aborted; err != nil {
		t.Fatal(err)
	}
	request.read()
	if err := <-read; !isRefused(err, "has aborted already") {
		t.Error(err)
	}
}

// Its answer would not cover concurrent writes of another goroutine.
func TestATransactionTakesNoWritesWhileItIsValidated(t *testing.T) {
	c := newReadingCrowd(t, once)
	txn, validated := c.client.BeginLocal(""), make(chan error)
	go func() {
		_, err := txn.Validate(context.Background())
		validated <- err
	}()
	request := <-c.arrived
	txn.Put("kv", "a", 1)
	if err := txn.Err(); !isRefused(err, "two goroutines") {
		t.Error(err)
	}
	request.with(200, strings.Replace(wonLine(txn.ID()), "committed", "would_commit", 1))
	if err := <-validated; err != nil {
		t.Error(err)
	}
}
