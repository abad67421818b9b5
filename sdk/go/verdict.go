package tribunal

import (
	"strconv"
	"time"

	"tribunal.internal/client/wire"
)

type (
	// Epoch is the number of an epoch, and of the snapshot behind it.
	Epoch uint64
	// CSN is the arrival stamp of a transaction.
	CSN uint64
	// LSN is a position in a store's log: dense, from 1.
	LSN uint64
	// Version is what a written row carries; 0 is none.
	Version uint64
)

// Verdict is what the service decided, finally: *Committed or *Aborted.
type Verdict interface{ isVerdict() }

// Committed is durable and final.
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
	// Session makes a Begin see this commit.
	Session string
	// Applied says, with AckApplied, whether every store had applied it in time.
	Applied bool
	// Replayed says that the verdict had been given before: this was a repetition, or a lost reply was asked for.
	Replayed bool
}

// Aborted is final; the transaction left no trace.
type Aborted struct {
	TxnID string
	// Reason is read_conflict, write_conflict, range_conflict, row_exists, row_missing and so on.
	Reason string
	// Retryable says whether the same work on fresh reads, under a new id, may commit.
	Retryable bool
	// RetryAfter is how long to wait before that.
	RetryAfter time.Duration
	// Conflicts is what defeated it.
	Conflicts []Conflict
	// Replayed says that the verdict had been given before: this was a repetition, or a lost reply was asked for.
	Replayed bool
}

// Conflict is one thing that defeated a transaction.
type Conflict struct {
	Store string
	// Key of the row, or the range's start.
	Key string
	// End of the range; empty goes to the end of the store.
	End string
	// Op is which operation lost: read, range or write.
	Op string
	// Stage is the station that found it.
	Stage string
	// ReadVersion is what the transaction had read; 0 if nothing.
	ReadVersion Version
	// CurrentVersion is what is there now; 0 if nothing, or if the winner is of the same epoch.
	CurrentVersion Version
	// ByTxn is the winner, if it is of the same epoch.
	ByTxn string
}

func (*Committed) isVerdict() {}
func (*Aborted) isVerdict()   {}

// Status is what became of a transaction.
type Status struct {
	// Verdict is nil if there is none (yet).
	Verdict Verdict
	// State is committed, aborted, in_flight, unknown (it never arrived, but still may) or unknown_expired (nothing is
	// known of it any more, and nothing can become of it).
	State wire.TxnState
}

func verdictOf(outcome *wire.TxnOutcome, replayed bool) (Verdict, error) {
	r := reader{}
	switch outcome.Status {
	case wire.TxnStateCommitted:
		committed := &Committed{
			TxnID:    given(outcome.TxnID),
			Epoch:    Epoch(r.number(outcome.Epoch)),
			CSN:      CSN(r.number(outcome.Csn)),
			Version:  Version(r.number(outcome.Version)),
			LSN:      map[string]LSN{},
			Session:  given(outcome.Session),
			Applied:  given(outcome.Applied),
			Replayed: replayed,
		}
		for store, lsn := range given(outcome.Lsn) {
			committed.LSN[store] = LSN(r.number(&lsn))
		}
		return committed, r.err
	case wire.TxnStateAborted:
		aborted := &Aborted{
			TxnID:      given(outcome.TxnID),
			Reason:     given(outcome.Reason),
			Retryable:  given(outcome.Retryable),
			RetryAfter: time.Duration(given(outcome.RetryAfterMs)) * time.Millisecond,
			Replayed:   replayed,
		}
		for _, conflict := range given(outcome.Conflicts) {
			aborted.Conflicts = append(aborted.Conflicts, Conflict{
				Store:          conflict.Store,
				Key:            r.key(conflict.Key, conflict.KeyB64),
				End:            r.key(conflict.End, conflict.EndB64),
				Op:             conflict.Op,
				Stage:          conflict.Stage,
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
	return nil, misbehaved("status %s where a verdict was due", outcome.Status)
}

// reader reads fields and keeps the first fault.
type reader struct{ err error }

func (r *reader) number(text *string) uint64 {
	if text == nil {
		return 0
	}
	number, err := strconv.ParseUint(*text, 10, 64)
	if err != nil && r.err == nil {
		r.err = misbehaved("%q where a number was due", *text)
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
