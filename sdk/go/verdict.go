package tribunal

import (
	"strconv"
	"time"

	"tribunal.internal/client/wire"
)

type (
	// Epoch is the number of an epoch, and of the snapshot at its end.
	Epoch uint64
	// CSN is the arrival stamp of a transaction.
	CSN uint64
	// LSN is a position in a store's log: dense, from 1.
	LSN uint64
	// Version is the version of a written row; 0 is none.
	Version uint64
)

// Verdict is the final decision of the service: *Committed or *Aborted.
type Verdict interface{ isVerdict() }

// Committed is the verdict of a durable transaction.
type Committed struct {
	TxnID string
	// Epoch is the epoch that decided it.
	Epoch Epoch
	// CSN is the arrival stamp; read-only transactions have none.
	CSN CSN
	// Version of every row written; 0 if nothing was.
	Version Version
	// LSN is the position in the log of each store written.
	LSN map[string]LSN
	// Session is a token for a Begin elsewhere that must see this commit; this client's own transactions do by default.
	Session string
	// Applied is set, with AckApplied, if every store had applied it in time.
	Applied bool
	// Replayed is set if the verdict is an earlier one: the request was a repetition, or its first reply was lost.
	Replayed bool
	// Traceparent is the W3C trace context of the server's span, if the request was traced.
	Traceparent string
}

// Aborted is the verdict of a transaction without effect.
type Aborted struct {
	TxnID string
	// Epoch is the epoch that decided it.
	Epoch Epoch
	// Reason is one of wire.AbortReason, or another one of a newer service: read_conflict, write_conflict, range_conflict,
	// row_exists, row_missing and so on.
	Reason string
	// PluginCode is the code that the isolation validator returned, with reason plugin.
	PluginCode int
	// Retryable is set if the same work on fresh reads, under a new id, may commit.
	Retryable bool
	// RetryAfter is how long to wait before that attempt.
	RetryAfter time.Duration
	// Conflicts has the rows and ranges that defeated it.
	Conflicts []Conflict
	// Replayed is set if the verdict is an earlier one: the request was a repetition, or its first reply was lost.
	Replayed bool
	// Traceparent is the W3C trace context of the server's span, if the request was traced.
	Traceparent string
}

// Conflict is a row or range that defeated a transaction.
type Conflict struct {
	Store string
	// Key of the row, or the range's start.
	Key string
	// End of the range; empty is the end of the store, or a row. Op distinguishes a range from a row.
	End string
	// Row is, for a range, the first row in it that the winner wrote, if the server still remembers.
	Row string
	// Op is the operation that lost: read, range or write.
	Op string
	// Stage is the stage of the pipeline that found it.
	Stage string
	// ReadVersion is the version that the transaction had read; 0 if none.
	ReadVersion Version
	// CurrentVersion is the row's version now; 0 if it is absent, or if the winner is of the same epoch.
	CurrentVersion Version
	// ByTxn is the transaction that won, if the server still remembers.
	ByTxn string
}

func (*Committed) isVerdict() {}
func (*Aborted) isVerdict()   {}

// Status is the state of a transaction.
type Status struct {
	// Verdict is nil if there is none.
	Verdict Verdict
	// State is committed, aborted, in_flight, unknown (it has not arrived, but still may) or unknown_expired (it is no
	// longer known, and can no longer commit).
	State wire.TxnState
}

func verdictOf(outcome *wire.TxnOutcome, replayed bool, traceparent string) (Verdict, error) {
	r := reader{}
	switch outcome.Status {
	case wire.TxnStateCommitted:
		committed := &Committed{
			TxnID:       given(outcome.TxnID),
			Epoch:       Epoch(r.number(outcome.Epoch)),
			CSN:         CSN(r.number(outcome.Csn)),
			Version:     Version(r.number(outcome.Version)),
			LSN:         map[string]LSN{},
			Session:     given(outcome.Session),
			Applied:     given(outcome.Applied),
			Replayed:    replayed,
			Traceparent: traceparent,
		}
		for store, lsn := range given(outcome.Lsn) {
			committed.LSN[store] = LSN(r.number(&lsn))
		}
		return committed, r.err
	case wire.TxnStateAborted:
		aborted := &Aborted{
			TxnID:       given(outcome.TxnID),
			Epoch:       Epoch(r.number(outcome.Epoch)),
			Reason:      string(given(outcome.Reason)),
			PluginCode:  int(given(outcome.PluginCode)),
			Retryable:   given(outcome.Retryable),
			RetryAfter:  time.Duration(given(outcome.RetryAfterMs)) * time.Millisecond,
			Replayed:    replayed,
			Traceparent: traceparent,
		}
		for _, conflict := range given(outcome.Conflicts) {
			aborted.Conflicts = append(aborted.Conflicts, Conflict{
				Store:          conflict.Store,
				Key:            r.key(conflict.Key, conflict.KeyB64),
				End:            r.key(conflict.End, conflict.EndB64),
				Row:            r.key(conflict.Row, conflict.RowB64),
				Op:             string(conflict.Op),
				Stage:          string(conflict.Stage),
				ReadVersion:    Version(r.number(conflict.ReadVersion)),
				CurrentVersion: Version(r.number(conflict.CurrentVersion)),
				ByTxn:          given(conflict.ByTxn),
			})
		}
		return aborted, r.err
	}
	if outcome.Problem != nil {
		return nil, errorOf(*outcome.Problem)
	}
	return nil, unexpected(outcome.Status)
}

// unexpected is the error of a status that is not a verdict.
func unexpected(status wire.TxnState) error {
	if status == "" || status.Valid() {
		return misbehaved("status %s where a verdict was expected", status)
	}
	return misbehaved("status `%s`, which this client does not know: the client is older than the server", status)
}

// reader converts wire fields and keeps the first error.
type reader struct{ err error }

func (r *reader) number(text *string) uint64 {
	if text == nil {
		return 0
	}
	number, err := strconv.ParseUint(*text, 10, 64)
	if err != nil && r.err == nil {
		r.err = misbehaved("%q where a number was expected", *text)
	}
	return number
}

func (r *reader) key(text, inBase64 *string) string {
	key, _, err := keyOf(text, inBase64)
	if err != nil && r.err == nil {
		r.err = err
	}
	return key
}

func given[T any](field *T) T {
	if field == nil {
		var absent T
		return absent
	}
	return *field
}
