package tribunal

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"tribunal.internal/client/wire"
)

var operations = []wire.WriteOp{wire.Insert, wire.Update, wire.Put, wire.Delete, wire.Add}

// apply applies an operation to a row like a storage; false if it must not be applied.
func apply(row *int, write pendingWrite) (*int, bool) {
	value, _ := strconv.Atoi(string(write.value))
	if row == nil && write.or != nil {
		row = write.or
	}
	if write.op == wire.Insert && row != nil || write.op != wire.Insert && write.op != wire.Put && row == nil {
		return nil, false
	}
	switch write.op {
	case wire.Delete:
		return nil, true
	case wire.Add:
		value += *row
	}
	return &value, true
}

func same(a, b *int) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func TestAMergedOperationHasTheEffectOfBoth(t *testing.T) {
	ten, five, checked := 10, 5, 0
	all := []pendingWrite{{op: wire.Add, or: &five}}
	for _, op := range operations {
		all = append(all, pendingWrite{op: op})
	}
	for _, first := range all {
		for _, second := range all {
			for _, row := range []*int{nil, &ten} {
				one, two := first, second
				if first.op != wire.Delete {
					one.value = json.RawMessage("3")
				}
				if second.op != wire.Delete {
					two.value = json.RawMessage("4")
				}
				whole, applies := apply(row, one)
				if applies {
					whole, applies = apply(whole, two)
				}
				known := present
				if row == nil {
					known = absent
				}
				both, err := merge(&one, two, known)
				switch {
				case err != nil:
					if applies {
						t.Errorf("%+v %+v %v: %v", first, second, row, err)
					}
				case both == nil:
					if !applies || !same(whole, row) {
						t.Errorf("%+v %+v %v: nothing", first, second, row)
					}
				case applies:
					// A merged operation may check existence later, but a commit has the same effect.
					if merged, ok := apply(row, *both); !ok || !same(merged, whole) {
						t.Errorf("%+v %+v %v: %+v", first, second, row, both)
					}
					checked++
				}
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d pairs can be applied", checked)
	}
}

func TestSumsThatOverflowAreRefused(t *testing.T) {
	for _, pair := range [][2]string{
		{"9223372036854775807", "1"}, {"-9223372036854775808", "-1"}, {"1.5", "1"}, {"\"1\"", "1"}, {"", "1"},
	} {
		if total, err := sum(json.RawMessage(pair[0]), json.RawMessage(pair[1])); err == nil {
			t.Errorf("%v: %s", pair, total)
		}
	}
	total, err := sum(json.RawMessage("9223372036854775807"), json.RawMessage("-9223372036854775808"))
	if err != nil || string(total) != "-1" {
		t.Error(string(total), err)
	}
}

func TestAnAddToARowThatIsMissingTellsWhatCreatesIt(t *testing.T) {
	var misuse *Misuse
	_, err := pendingWrite{op: wire.Add, value: json.RawMessage("1")}.addedTo(nil)
	if !errors.As(err, &misuse) || !strings.Contains(err.Error(), "use AddOr") {
		t.Error(err)
	}
}

func TestWaitsAreRandomUpToABoundThatDoublesAndAreLimitedInNumber(t *testing.T) {
	policy := RetryPolicy{AttemptsMax: 20, WaitMin: 2 * time.Millisecond, WaitMax: 100 * time.Millisecond}
	for failed := 1; failed < 20; failed++ {
		bound := min(time.Millisecond<<failed, 100*time.Millisecond)
		lowest, highest := time.Hour, time.Duration(0)
		for range 200 {
			wait, again := policy.wait(failed, 7*time.Second)
			lowest, highest = min(lowest, wait), max(highest, wait)
			if !again {
				t.Fatal(failed)
			}
		}
		if lowest < 7*time.Second || highest > 7*time.Second+bound || highest-lowest < bound/2 {
			t.Errorf("%d: %v to %v", failed, lowest, highest)
		}
	}
	if _, again := policy.wait(20, 0); again {
		t.Error("the last attempt was the last")
	}
}

func TestKeysOfAnyBytesSurviveARoundTrip(t *testing.T) {
	for _, key := range []string{"", "acct/1", "grün \"%\"", "\xff\x00\x80"} {
		back, ok, err := keyOf(keyFields(key))
		if back != key || !ok || err != nil {
			t.Errorf("%q: %q %v %v", key, back, ok, err)
		}
	}
}
