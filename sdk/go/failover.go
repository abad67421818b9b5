package tribunal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// roundsMax is how often each of several endpoints is tried for one call.
const roundsMax = 2

// failure is why an endpoint did not answer a request.
type failure struct {
	err error
	// maybeTaken is set if the request may have taken effect.
	maybeTaken bool
	// mistake is what is wrong with the address or the trust, if that is known.
	mistake string
	problem *Problem
}

// truncated has the codes of what an endpoint no longer has, but another one may have: each node truncates its own log.
var truncated = []string{"log_truncated", "state_gone"}

// aboutTheRequest has the refusals because of a request's size, which every endpoint would repeat.
var aboutTheRequest = []int{
	http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge,
}

// failureOf returns why a reply does not count as one: the connection failed, the endpoint is unavailable, or something
// else is in its place; nil if it is one. "overloaded" is an answer: the same load would follow to the next endpoint.
func failureOf[T any](a reply[T]) *failure {
	if a.err != nil {
		return &failure{a.err, !a.neverSent, a.mistake, a.problem}
	}
	// Without a problem document, a 503 comes from an intermediary, which may have forwarded the request.
	refuses := a.status == http.StatusServiceUnavailable && a.problem != nil
	maybeTaken := a.status >= 500 && !refuses
	switch {
	case a.status == 0 || a.problem == nil && slices.Contains(aboutTheRequest, a.status):
		return nil
	case a.problem == nil:
		return &failure{fmt.Errorf("status %d without a problem document", a.status), maybeTaken, "", nil}
	case !slices.Contains([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, a.status),
		!a.problem.Retryable, a.problem.Code == "overloaded":
		return nil
	}
	return &failure{fmt.Errorf("%d %s: %s", a.status, a.problem.Code, a.problem.Detail), maybeTaken, "", a.problem}
}

// inDoubt returns the reply to a commit whose copy another endpoint may have accepted: a refusal of this copy does not
// reveal the fate of the other.
func inDoubt[T any](a reply[T], maybeTaken bool) reply[T] {
	switch {
	case !maybeTaken || a.data != nil || a.garbled:
		return a
	case a.err != nil:
		return reply[T]{err: a.err}
	case a.problem != nil:
		return reply[T]{err: fmt.Errorf("%d %s: %s", a.status, a.problem.Code, a.problem.Detail)}
	}
	return reply[T]{err: fmt.Errorf("status %d", a.status)}
}

// failover has the attempts of one call on the endpoints of a service: where to send it next, for how long, and when to
// give up. With one endpoint, a request is sent once. With several, it moves to the next one after a failure, in
// rounds. Almost every request of this client may be repeated: it changes nothing, or has no further effect; a commit is
// decided once, by its id. The exceptions are those that change a consumer.
type failover struct {
	endpoints *endpoints
	retry     RetryPolicy
	// wait is how long the request itself may wait.
	wait     time.Duration
	deadline time.Time
	// at is the endpoint of the latest attempt.
	at       int
	tried    []int
	failures []*failure
	// maybeTaken is set if some attempt may have taken effect.
	maybeTaken bool
	// ifNotTaken is set if no endpoint may get the request that another one may still take: a change of a consumer,
	// where a copy that is taken late would undo a later one.
	ifNotTaken bool
	// truncated is the first problem of an endpoint that no longer has the records.
	truncated *Problem
}

// failover begins a call that may take the client's timeout, in addition to the time that the request itself may wait.
func (c *Client) failover(wait time.Duration) *failover {
	return c.failoverWithin(wait, c.options.Timeout)
}

// failoverWithin begins a call that may take a timeout, in addition to the time that the request itself may wait.
func (c *Client) failoverWithin(wait, timeout time.Duration) *failover {
	wait, count := min(max(wait, 0), requestWaitMax), len(c.endpoints.urls)
	return &failover{
		endpoints: c.endpoints, retry: c.options.Retry, wait: wait, deadline: time.Now().Add(wait + timeout),
		tried: make([]int, count), failures: make([]*failure, count),
	}
}

// until sets the end of the call, unless it is zero.
func (f *failover) until(until time.Time) *failover {
	if !until.IsZero() && until.Before(f.deadline) {
		f.deadline = until
	}
	return f
}

func (f *failover) isSingle() bool { return len(f.tried) == 1 }

// next chooses the endpoint of the next attempt, after a wait if all have had their turn. It returns the timeout of the
// attempt, and false if none is left.
func (f *failover) next(ctx context.Context) (time.Duration, bool) {
	round := slices.Min(f.tried)
	if round >= roundsMax || f.isSingle() && round > 0 {
		return 0, false
	}
	inTurn := func(tried int) bool { return tried != round && tried != roundsMax }
	if round > 0 && !slices.ContainsFunc(f.tried, inTurn) {
		pause, again := f.retry.wait(round, f.retryAfter())
		if !again || !time.Now().Add(pause).Before(f.deadline) || sleep(ctx, pause) != nil {
			return 0, false
		}
	}
	left := max(time.Until(f.deadline), 0)
	if left == 0 && slices.Max(f.tried) > 0 {
		return 0, false
	}
	at, found := f.endpoints.choose(func(at int) bool { return f.tried[at] == round })
	if !found {
		return 0, false
	}
	// Each endpoint left to try in this round gets an equal share of the time.
	others := 0
	for _, tried := range f.tried {
		if tried == round {
			others++
		}
	}
	f.at = at
	f.tried[at]++
	share := max(left-f.wait, 0) / time.Duration(others)
	if f.endpoints.hasRested(func(at int) bool { return f.tried[at] == 0 }) {
		share = min(share, f.endpoints.timeout)
	}
	if f.ifNotTaken {
		// No other endpoint gets what this one may take.
		return left, true
	}
	return min(left, f.wait+share), true
}

// isOver records how the latest attempt ended. It returns whether its reply is the call's reply, so that no other
// attempt follows.
func (f *failover) isOver(failed *failure) bool {
	if failed == nil {
		f.endpoints.works(f.at)
		return true
	}
	if failed.problem != nil && failed.problem.Code == "store_lagging" {
		// The endpoint works: it waited for the commits that the request must see.
		f.tried[f.at] = roundsMax
	} else {
		f.endpoints.failed(f.at)
	}
	f.failures[f.at] = failed
	if !f.isSingle() && failed.maybeTaken {
		f.maybeTaken = true
	}
	// The service decides no transaction while it stops, but may still make another change.
	isInDoubt := failed.maybeTaken || failed.problem != nil && failed.problem.Code == "stopping"
	return f.isSingle() || f.ifNotTaken && isInDoubt
}

// isTruncated records whether the endpoint of the latest attempt no longer has the records. Another one may have them.
func (f *failover) isTruncated(status int, problem *Problem) bool {
	if f.isSingle() || status != http.StatusGone || problem == nil || !slices.Contains(truncated, problem.Code) {
		return false
	}
	f.endpoints.works(f.at)
	f.tried[f.at] = roundsMax
	f.failures[f.at] = nil
	if f.truncated == nil {
		f.truncated = problem
	}
	return true
}

// nowhere returns the result of a stream that no endpoint has sent. If one of them no longer has the records, it is its
// problem, with the others that were not reached.
func nowhere[T any](f *failover) reply[T] {
	if f.truncated == nil {
		return exhausted[T](f)
	}
	var reasons []string
	for at, failed := range f.failures {
		if failed != nil {
			reasons = append(reasons, f.endpoints.urls[at]+": "+failed.err.Error())
		}
	}
	if len(reasons) == 0 {
		f.truncated.Detail += "; none of this client's endpoints has enough of the log"
	} else {
		f.truncated.Detail += "; none of this client's endpoints that answered has enough of the log, and these did not: " +
			strings.Join(reasons, "; ")
	}
	return reply[T]{status: http.StatusGone, problem: f.truncated}
}

// retryAfter returns the shortest wait that an endpoint requested.
func (f *failover) retryAfter() time.Duration {
	asked := time.Duration(0)
	for _, failed := range f.failures {
		if failed == nil || failed.problem == nil || failed.problem.RetryAfterMs == nil {
			continue
		}
		if wait := time.Duration(*failed.problem.RetryAfterMs) * time.Millisecond; asked == 0 || wait < asked {
			asked = wait
		}
	}
	return asked
}

// exhausted returns the result of a call that has no attempt left.
func exhausted[T any](f *failover) reply[T] {
	var mistakes []string
	count, reasons := 0, make([]error, len(f.failures))
	answer := reply[T]{neverSent: !f.maybeTaken}
	for at, failed := range f.failures {
		if failed == nil {
			continue
		}
		count++
		reasons[at] = failed.err
		if failed.mistake != "" {
			mistakes = append(mistakes, failed.mistake)
		}
		if answer.problem == nil {
			answer.problem = failed.problem
		}
	}
	if len(mistakes) == count {
		answer.mistake = strings.Join(mistakes, "; ")
	}
	answer.err = noneAnswered(f.endpoints.urls, reasons)
	return answer
}

// noneAnswered lists each endpoint that failed, and its reason.
func noneAnswered(urls []string, reasons []error) error {
	var each []string
	for at, reason := range reasons {
		if reason != nil {
			each = append(each, urls[at]+": "+reason.Error())
		}
	}
	return errors.New("no endpoint has answered: " + strings.Join(each, "; "))
}
