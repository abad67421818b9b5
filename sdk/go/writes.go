package tribunal

import (
	"encoding/json"
	"strconv"

	"tribunal.internal/client/wire"
)

// pendingWrite is the merged operation on a row: several operations on one row become one, as the API requires.
type pendingWrite struct {
	op wire.WriteOp
	// value is nil for a delete.
	value json.RawMessage
}

// known is what is known of a row before the transaction.
type known int

const (
	unread known = iota
	absent
	present
)

// merge merges a further operation into the one before; nil if nothing is left to do.
func merge(before *pendingWrite, next pendingWrite, row known) (*pendingWrite, error) {
	if before == nil {
		return &next, nil
	}
	if before.op == wire.Delete {
		if next.op == wire.Insert || next.op == wire.Put {
			return &pendingWrite{wire.Update, next.value}, nil
		}
		return nil, misuse("the transaction changes a row that it deleted before")
	}
	switch next.op {
	case wire.Insert:
		return nil, misuse("the transaction inserts a row that it wrote before")
	case wire.Add:
		value, err := sum(before.value, next.value)
		return &pendingWrite{before.op, value}, err
	case wire.Delete:
		if before.op == wire.Insert || before.op == wire.Put {
			if row == absent {
				return nil, nil
			}
			if before.op == wire.Insert || row == unread {
				return nil, misuse("the transaction %ss and deletes a row that it has not read", before.op)
			}
		}
		return &next, nil
	}
	if before.op == wire.Add {
		return &pendingWrite{wire.Update, next.value}, nil
	}
	return &pendingWrite{before.op, next.value}, nil
}

// sum adds two JSON integers exactly.
func sum(left, right json.RawMessage) (json.RawMessage, error) {
	a, errA := strconv.ParseInt(string(left), 10, 64)
	b, errB := strconv.ParseInt(string(right), 10, 64)
	total := a + b
	if errA != nil || errB != nil || (b > 0) != (total > a) && b != 0 {
		return nil, misuse("add needs integers whose sum fits into 64 bits")
	}
	return json.RawMessage(strconv.FormatInt(total, 10)), nil
}
