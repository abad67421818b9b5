package tribunal

import (
	"context"
	"sync"
)

// closing tracks whether a transaction accepts further reads and writes.
type closing struct {
	mutex sync.Mutex
	// reason is why it does not: no verdict would cover them; nil if it does.
	reason error
	// commits is the number of commits that have not ended.
	commits int
}

var (
	errCommitting = misuse("the commit of the transaction is under way, and would not contain this read or write: " +
		"finish reads and writes before it")
	errUndetermined = misuse("the transaction was sent for its verdict, which is not known, and does not contain this read or write: " +
		"begin another one")
	errReturned = misuse("the work of Run has returned, and the commit does not contain this read or write: " +
		"finish reads and writes before the work returns")
)

// err returns the error of further reads and writes; nil if they are accepted.
func (c *closing) err() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.reason
}

// commit closes the transaction for a commit.
func (c *closing) commit() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.commits++
	if c.reason == nil {
		c.reason = errCommitting
	}
}

// committed ends a commit. It reopens the transaction if neither this commit nor another one can have been decided.
func (c *closing) committed(ctx context.Context, verdict Verdict, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.commits--
	switch {
	case err == nil:
		c.reason = errDecided(verdict)
	case c.reason != errCommitting:
	case !isUndecided(ctx, err):
		c.reason = errUndetermined
	case c.commits == 0:
		c.reason = nil
	}
}

// decided closes the transaction with its verdict.
func (c *closing) decided(verdict Verdict) { c.close(errDecided(verdict)) }

func (c *closing) close(reason error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.reason = reason
}

func errDecided(verdict Verdict) error {
	status := "aborted"
	if _, ok := verdict.(*Committed); ok {
		status = "committed"
	}
	return misuse("the transaction has %s already: begin another one for this read or write", status)
}

// isUndecided reports whether an error of a commit means that nothing was decided. Only the error itself counts, not an
// error that it wraps: an *OutcomeUnknown may wrap an *Unavailable.
func isUndecided(ctx context.Context, err error) bool {
	switch err := err.(type) {
	case *Unavailable, *Misuse:
		return true
	case *ClientMistake:
		// The id was already used with another body, which may have its verdict.
		return err.Code() != "body_mismatch"
	}
	// The context ended before the commit was sent.
	return err == ctx.Err()
}
