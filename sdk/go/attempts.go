package tribunal

import (
	"context"
	"maps"
	"time"
)

// expired is the code of a commit whose id is too old to be decided, and has no known verdict.
const expired = "txn_id_expired"

// Attempt is the end of one attempt of [Client.Run].
type Attempt struct {
	// Number is 1 for the first.
	Number int
	// TxnID is empty if no transaction could begin.
	TxnID string
	// Verdict is nil if there is an error.
	Verdict Verdict
	// Err is the error of the work, or the reason why there is no verdict.
	Err error
	// Last is set if no attempt follows.
	Last bool
	// Wait is the wait before the next attempt.
	Wait time.Duration
}

// refusedRow is a refusal of a row: its epoch, and the versions that the attempt had read.
type refusedRow struct {
	epoch Epoch
	read  map[rowName]Version
}

// attempts counts the attempts of one Run against a policy, and reports each one.
type attempts struct {
	policy RetryPolicy
	report func(Attempt)
	// refused has the rows that were refused as existing or missing.
	refused map[rowName]refusedRow
	count   int
	// before is the error of the preceding attempt.
	before error
}

// available repeats a request until the service is available.
func (a *attempts) available(ctx context.Context, txnID string, ask func() error) error {
	for {
		err := ask()
		// Only the error itself means that nothing was decided, not an error that it wraps.
		unavailable, isUnavailable := err.(*Unavailable)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && err == ctx.Err():
			return a.failed(txnID, gaveUp(ctx, a.before))
		case ctx.Err() != nil || !isUnavailable:
			return a.failed(txnID, err)
		}
		if err := a.pause(ctx, Attempt{TxnID: txnID, Err: err}, unavailable.RetryAfter(), err); err != nil {
			return err
		}
	}
}

// decided repeats a commit until the service is available. Without an error it returns false, after a wait, if the
// service was unavailable for so long that it no longer decides the id: the work has to run again.
func (a *attempts) decided(ctx context.Context, txnID string, commit func() error) (bool, error) {
	late, refused := (*ClientMistake)(nil), false
	err := a.available(ctx, txnID, func() error {
		err := commit()
		// All earlier replies mean that nothing was decided: after any other error, the commit is not repeated. If there
		// are none, the work itself has taken too long, and would again.
		if mistake, ok := err.(*ClientMistake); ok && refused && mistake.Code() == expired {
			late = mistake
			return nil
		}
		refused = true
		return err
	})
	if err == nil && late != nil {
		err = a.pause(ctx, Attempt{TxnID: txnID, Err: late}, 0, late)
	}
	return late == nil, err
}

// failed reports an error that ends the run, and returns it.
func (a *attempts) failed(txnID string, err error) error {
	a.end(Attempt{TxnID: txnID, Err: err, Last: true})
	return err
}

// committed reports the commit.
func (a *attempts) committed(verdict *Committed) {
	a.end(Attempt{TxnID: verdict.TxnID, Verdict: verdict, Last: true})
}

// aborted waits before the next attempt; it returns an error if the abort is final or was the last.
func (a *attempts) aborted(ctx context.Context, txn *Transaction, verdict *Aborted) error {
	err := &TransactionAborted{Aborted: verdict, Attempts: a.count + 1}
	ended := Attempt{TxnID: txn.id, Verdict: verdict}
	if !a.mayPass(txn, verdict) {
		ended.Last = true
		a.end(ended)
		return err
	}
	return a.pause(ctx, ended, verdict.RetryAfter, err)
}

// mayPass reports whether another attempt may pass.
func (a *attempts) mayPass(txn *Transaction, verdict *Aborted) bool {
	if verdict.Reason == "fenced" {
		// The client itself fenced the transaction after losing the request: the work was not refused.
		return true
	}
	if !verdict.Retryable || verdict.Reason != "row_exists" && verdict.Reason != "row_missing" {
		return verdict.Retryable
	}
	// Work that reads nothing would repeat the same writes. Other work gets a fresh read: an attempt whose snapshot
	// includes the epoch that refused the row. If it reads the same versions, the work does not depend on the change. If
	// it reads others, another commit may have intervened, as before the first refusal.
	if txn.Blind() {
		return false
	}
	row := rowName{}
	if len(verdict.Conflicts) > 0 {
		row = rowName{verdict.Conflicts[0].Store, verdict.Conflicts[0].Key}
	}
	before, known := a.refused[row]
	if read := txn.versionsRead(); !known || !maps.Equal(before.read, read) {
		if a.refused == nil {
			a.refused = map[rowName]refusedRow{}
		}
		a.refused[row] = refusedRow{verdict.Epoch, read}
		return true
	}
	snapshot, named := txn.Snapshot(row.store)
	return named && snapshot < before.epoch
}

func (a *attempts) pause(ctx context.Context, ended Attempt, asked time.Duration, err error) error {
	wait, again := a.policy.wait(a.count+1, asked)
	ended.Wait, ended.Last = wait, !again
	a.end(ended)
	if !again {
		return err
	}
	a.before = err
	if sleep(ctx, wait) != nil {
		return gaveUp(ctx, err)
	}
	return nil
}

func (a *attempts) end(ended Attempt) {
	a.count++
	ended.Number = a.count
	if a.report != nil {
		a.report(ended)
	}
}
