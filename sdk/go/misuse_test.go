package tribunal_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	tribunal "tribunal.internal/client"
)

func TestAnAPIKeyThatNoHeaderCanHaveIsAMisuse(t *testing.T) {
	var misuse *tribunal.Misuse
	for _, key := range []string{"a\nb", "schlüssel", "a\x00"} {
		if _, err := tribunal.New("http://127.0.0.1:1", tribunal.Options{APIKey: key}); !errors.As(err, &misuse) {
			t.Errorf("%q: %v", key, err)
		}
	}
	// As read from a file.
	if _, err := connectedTo(t, serverURL(t), tribunal.Options{APIKey: "trb_0\n"}).Stores(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAnAbsentRowCannotBeDecoded(t *testing.T) {
	row, err := connected(t).Row(t.Context(), "kv", freshPrefix())
	var misuse *tribunal.Misuse
	if err != nil || row != nil || !errors.As(row.Decode(new(int)), &misuse) {
		t.Error(row, err)
	}
}

// The service closes the connection when it refuses a body that is on its way.
func TestACommitThatIsTooLargeIsAMistakeAndItsOutcomeNoQuestion(t *testing.T) {
	client, key := connected(t), freshPrefix()
	for range 10 {
		txn := client.BeginLocal("")
		txn.Put("kv", key, strings.Repeat("x", 11<<20))
		equal(t, "end", shown(txn.Commit(t.Context())), "mistake body_too_large")
		if _, err := client.Batch(t.Context(), prepared(t, txn)); shown(nil, err) != "mistake body_too_large" {
			t.Error(err)
		}
	}
	// A large one that is not too large commits.
	txn := client.BeginLocal("")
	for n := range 9 {
		txn.Put("kv", fmt.Sprint(key, n), strings.Repeat("x", 1000<<10))
	}
	verdict, err := txn.Commit(t.Context())
	committed(t, verdict, err)
}
