package tribunal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tribunal.internal/client/wire"
)

// Problem is the service's description of an error (RFC 9457).
type Problem = wire.Problem

// ClientMistake is the error of a request that is wrong, as its retry would be; Problem.Errors has the details.
type ClientMistake struct {
	Problem Problem
}

func (e *ClientMistake) Error() string {
	var faults []string
	if e.Problem.Errors != nil {
		for _, fault := range *e.Problem.Errors {
			// The detail of a single error is already that of the problem.
			if !strings.Contains(e.Problem.Detail, fault.Detail) {
				faults = append(faults, fault.Pointer+": "+fault.Detail)
			}
		}
	}
	text := e.Problem.Code + ": " + e.Problem.Detail
	if len(faults) > 0 {
		text += " (" + strings.Join(faults, "; ") + ")"
	}
	return text
}

// Code is the code of the error, for programs: unknown_store, log_truncated and so on.
func (e *ClientMistake) Code() string { return e.Problem.Code }

// Unavailable is the error of a request that decided nothing; the same request may succeed later.
type Unavailable struct {
	// Problem is the service's problem document; nil if the service could not be reached. If several endpoints were tried,
	// it is that of one of them.
	Problem *Problem
	// Err is why the service could not be reached. If several endpoints were tried, it lists each one with its reason.
	Err error
}

func (e *Unavailable) Error() string {
	if e.Problem != nil && e.Err == nil {
		return "tribunal is unavailable: " + e.Problem.Code + ": " + e.Problem.Detail
	}
	return fmt.Sprintf("tribunal is unavailable: %v", e.Err)
}

func (e *Unavailable) Unwrap() error { return e.Err }

// RetryAfter is how long to wait before a retry.
func (e *Unavailable) RetryAfter() time.Duration {
	if e.Problem == nil || e.Problem.RetryAfterMs == nil {
		return 0
	}
	return time.Duration(*e.Problem.RetryAfterMs) * time.Millisecond
}

// OutcomeUnknown is the error of a commit whose outcome is not known: it may have committed. [Client.Status] returns
// the outcome, and with a fence ensures that a commit that has not arrived never takes effect.
type OutcomeUnknown struct {
	TxnID string
	Err   error
}

func (e *OutcomeUnknown) Error() string {
	return fmt.Sprintf("the outcome of transaction %s is unknown: %v; Client.Status requests it", e.TxnID, e.Err)
}

// Unwrap returns the error of the caller's context, if that ended the wait for the outcome, and no other error: an
// *Unavailable in Err would imply that nothing was decided, which is not known here.
func (e *OutcomeUnknown) Unwrap() error {
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(e.Err, ended) {
			return ended
		}
	}
	return nil
}

// TransactionAborted is the error of a Run without a commit: the last abort was final, or the retries are used up.
type TransactionAborted struct {
	// Aborted is the last verdict; its Retryable is set if further attempts may pass.
	Aborted *Aborted
	// Attempts is the number of attempts.
	Attempts int
}

func (e *TransactionAborted) Error() string {
	text := fmt.Sprintf("transaction %s aborted: %s", e.Aborted.TxnID, e.Aborted.Reason)
	if len(e.Aborted.Conflicts) > 0 {
		first := e.Aborted.Conflicts[0]
		text += fmt.Sprintf(" at %s/%q", first.Store, first.Key)
	}
	if e.Attempts > 1 {
		text += fmt.Sprintf(", after %d attempts", e.Attempts)
	}
	return text
}

// ServerMisbehaved is the error of a response that violates the API, or that comes from a newer server and is unknown
// to this client.
type ServerMisbehaved struct {
	Text string
}

func (e *ServerMisbehaved) Error() string { return "unexpected response: " + e.Text }

func misbehaved(format string, arguments ...any) error {
	return &ServerMisbehaved{Text: fmt.Sprintf(format, arguments...)}
}

// Misuse is the error of a client that is used or configured in a way that cannot work.
type Misuse struct {
	Text string
}

func (e *Misuse) Error() string { return e.Text }

func misuse(format string, arguments ...any) error {
	return &Misuse{Text: fmt.Sprintf(format, arguments...)}
}

func errorOf(problem Problem) error {
	if problem.Retryable || problem.Status >= 500 {
		return &Unavailable{Problem: &problem}
	}
	return &ClientMistake{Problem: problem}
}
