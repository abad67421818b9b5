package tribunal

import (
	"encoding/json"
	"errors"
	"strconv"

	"tribunal.internal/client/wire"
)

// pendingWrite is the merged operation on a row: several operations on one row become one, as the API requires.
type pendingWrite struct {
	op wire.WriteOp
	// value is nil for a delete.
	value json.RawMessage
	// or is the value that an add starts from if the row is missing; nil if the row must exist.
	or *int
}

// addedTo returns the value that an add leaves in a row, given the row's value.
func (w pendingWrite) addedTo(row json.RawMessage) (json.RawMessage, error) {
	if row == nil {
		if w.or == nil {
			return nil, misuse("the transaction adds to a row that is missing: use AddOr to create it")
		}
		row = json.RawMessage(strconv.Itoa(*w.or))
	}
	return sum(row, w.value)
}

// known is the known state of a row before the transaction.
type known int

const (
	unread known = iota
	absent
	present
)

// merge merges another operation into the preceding one; nil if nothing is left to do.
func merge(before *pendingWrite, next pendingWrite, row known) (*pendingWrite, error) {
	if before == nil {
		return &next, nil
	}
	if before.op == wire.Delete {
		if next.op == wire.Insert || next.op == wire.Put {
			return &pendingWrite{op: wire.Update, value: next.value}, nil
		}
		if next.op == wire.Add && next.or != nil {
			value, err := next.addedTo(nil)
			return &pendingWrite{op: wire.Update, value: value}, err
		}
		if next.op == wire.Add {
			return nil, misuse("the transaction adds to a row that it deleted before: use AddOr to create it again")
		}
		return nil, misuse("the transaction changes a row that it deleted before")
	}
	switch next.op {
	case wire.Insert:
		return nil, misuse("the transaction inserts a row that it wrote before")
	case wire.Add:
		value, err := sum(before.value, next.value)
		return &pendingWrite{before.op, value, before.or}, err
	case wire.Delete:
		if before.op == wire.Insert || before.op == wire.Put || before.or != nil {
			if row == absent {
				return nil, nil
			}
			if before.or != nil && row == unread {
				return nil, misuse("the transaction adds to and deletes a row that it has not read: read the row before writing it")
			}
			if before.op == wire.Insert || row == unread {
				return nil, misuse("the transaction %ss and deletes a row that it has not read: read the row before writing it", before.op)
			}
		}
		return &next, nil
	}
	switch {
	case before.or != nil:
		return &pendingWrite{op: wire.Put, value: next.value}, nil
	case before.op == wire.Add:
		return &pendingWrite{op: wire.Update, value: next.value}, nil
	}
	return &pendingWrite{op: before.op, value: next.value}, nil
}

// sum adds two JSON integers exactly.
func sum(left, right json.RawMessage) (json.RawMessage, error) {
	a, errA := strconv.ParseInt(string(left), 10, 64)
	b, errB := strconv.ParseInt(string(right), 10, 64)
	total := a + b
	switch {
	case errors.Is(errA, strconv.ErrSyntax):
		return nil, misuse("Add needs a row whose value is an integer, not %s: Put other values", kindOf(left))
	case errors.Is(errB, strconv.ErrSyntax):
		return nil, misuse("Add needs a row whose value is an integer, not %s: Put other values", kindOf(right))
	case errA != nil || errB != nil || (b > 0) != (total > a) && b != 0:
		return nil, misuse("Add needs integers whose sum fits into 64 bits")
	}
	return json.RawMessage(strconv.FormatInt(total, 10)), nil
}

// kindOf names the kind of a JSON value that is not an integer.
func kindOf(value json.RawMessage) string {
	switch {
	case len(value) == 0:
		return "none"
	case value[0] == '"':
		return "a string"
	case value[0] == '{':
		return "an object"
	case value[0] == '[':
		return "an array"
	}
	return string(value)
}
