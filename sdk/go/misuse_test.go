package tribunal_test

import (
	"errors"
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

// The service closes the connection when it refuses a body that is on its way, which may lose the refusal.
func TestARequestThatIsTooLargeIsNotSent(t *testing.T) {
	client := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{})
	txn := client.BeginLocal("")
	txn.Put("kv", "a", strings.Repeat("x", 11<<20))
	var misuse *tribunal.Misuse
	if _, err := txn.Commit(t.Context()); !errors.As(err, &misuse) || !strings.Contains(err.Error(), "limit") {
		t.Error(err)
	}
	if _, err := client.Batch(t.Context(), prepared(t, txn)); !errors.As(err, &misuse) {
		t.Error(err)
	}
}
