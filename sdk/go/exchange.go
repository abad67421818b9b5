package tribunal

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tribunal.internal/client/wire"
)

// replyBytesMax bounds a response.
const replyBytesMax = 256 << 20

type response = http.Response

// reply is a response of 2xx, a refusal with its problem, or neither.
type reply[T any] struct {
	data   *T
	header http.Header
	// status is that of a refusal, of endpoint. Without a problem it did not come from the service, but from something in
	// its place.
	status   int
	problem  *Problem
	endpoint string
	// err is why there is no readable response.
	err error
	// ended is the error of the caller's context if that is why there is no response.
	ended     error
	neverSent bool
	// mistake is what is wrong with the address or the trust, if that is known: a retry cannot help.
	mistake string
	// garbled is set if the response does not fit the API.
	garbled bool
}

// call sends one request to one endpoint.
type call func(context.Context, *wire.Client) (*response, error)

// ask sends one request, within the timeout.
func ask[T any](ctx context.Context, c *Client, wait time.Duration, request call) reply[T] {
	return askUntil[T](ctx, c, wait, time.Time{}, request)
}

// askUntil sends one request, within the timeout and, unless it is zero, the deadline.
func askUntil[T any](ctx context.Context, c *Client, wait time.Duration, until time.Time, request call) reply[T] {
	return askOn(ctx, c, c.failover(wait).until(until), documentOf[T], request)
}

// askOn sends one request to one endpoint after another, until one answers or no attempt is left. The given function
// reads the response.
func askOn[T any](ctx context.Context, c *Client, f *failover, read func([]byte) (*T, error), request call) reply[T] {
	for timeout, again := f.next(ctx); again && ctx.Err() == nil; timeout, again = f.next(ctx) {
		answer := exchange(ctx, timeout, read, c.wires[f.at], request)
		// The caller gave up; the endpoint did not fail.
		if ctx.Err() != nil {
			answer.ended = ctx.Err()
			return answer
		}
		if f.isOver(failureOf(answer)) {
			return answer
		}
	}
	if ctx.Err() != nil {
		return endedReply[T](ctx, !f.maybeTaken)
	}
	return exhausted[T](f)
}

// exchange sends one request to one endpoint.
func exchange[T any](
	ctx context.Context, timeout time.Duration, read func([]byte) (*T, error), endpoint *wire.Client, request call,
) (answer reply[T]) {
	begun := time.Now()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if response, err := request(bounded, endpoint); err != nil {
		answer = lostRequest[T](err)
	} else {
		answer = replyOf(response, read)
	}
	if ctx.Err() == nil && errors.Is(answer.err, context.DeadlineExceeded) {
		answer.err = timedOut(time.Since(begun), answer.err)
	}
	return answer
}

// timedOut is the error of a request that took too long. It does not wrap the error of the context that ended the
// request: errors.Is would take that for the caller's.
func timedOut(after time.Duration, err error) error {
	return fmt.Errorf("no response within %v: %v", after.Round(time.Millisecond), err)
}

// replyOf reads a response.
func replyOf[T any](response *response, read func([]byte) (*T, error)) reply[T] {
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode/100 != 2 {
		return refusal[T](response)
	}
	if err := foreignType(response); err != nil {
		return reply[T]{err: err, garbled: true}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, replyBytesMax))
	if err != nil {
		return reply[T]{err: err}
	}
	data, err := read(body)
	if err != nil {
		return reply[T]{err: err, garbled: true}
	}
	return reply[T]{data: data, header: response.Header}
}

// foreignType returns an error if the content type of a response shows that it came from something in place of the
// service, such as the login page of a proxy.
func foreignType(response *response) error {
	given := strings.ToLower(response.Header.Get("Content-Type"))
	// Text may still be JSON; parsing decides.
	if given == "" || strings.HasPrefix(given, "application/") || strings.HasPrefix(given, "text/plain") {
		return nil
	}
	return fmt.Errorf("status %d with content type %q, which no answer of Tribunal has", response.StatusCode, given)
}

// lostRequest is the reply to a request without a response.
func lostRequest[T any](err error) reply[T] {
	var network *net.OpError
	mistake, noConnection := mistakeOf(err)
	neverSent := noConnection || errors.As(err, &network) && network.Op == "dial"
	if errors.Is(err, io.EOF) {
		// Not wrapped: callers take io.EOF for the end of a log.
		err = fmt.Errorf("%v", err)
	}
	return reply[T]{err: err, neverSent: neverSent, mistake: mistake}
}

// mistakeOf returns what is wrong with the address or the trust, if that is why there is no response, and whether that
// was found before the request was sent. If it was not, a commit may have been sent: an intermediary may have answered.
func mistakeOf(err error) (mistake string, neverSent bool) {
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	// Only an error at the first record of a connection, before any request, contains the connection.
	isFirst := errors.As(err, &noTLS) && noTLS.Conn != nil
	switch {
	case errors.As(err, &certificate):
		return fmt.Sprintf("the server's certificate is not trusted: %v; name its authority in CAFile", err), true
	case errors.Is(err, http.ErrSchemeMismatch), isFirst:
		// net/http does not report at which record it found the mismatch.
		return fmt.Sprintf("%v: does the service speak TLS there? Is its address http://?", err), isFirst
	case strings.Contains(err.Error(), tlsAlert):
		return fmt.Sprintf("%v: does the service speak TLS there? Then use https://", err), false
	}
	return "", false
}

// tlsAlert occurs in the error of net/http for a response that is a TLS alert: the service does not accept plain text.
const tlsAlert = `malformed HTTP response "\x15\x03`

// endedReply is the reply to a request whose caller no longer waits.
func endedReply[T any](ctx context.Context, neverSent bool) reply[T] {
	return reply[T]{err: ctx.Err(), ended: ctx.Err(), neverSent: neverSent}
}

// refusal is the reply of a response outside of 2xx.
func refusal[T any](response *response) reply[T] {
	body, err := io.ReadAll(io.LimitReader(response.Body, replyBytesMax))
	if err != nil {
		return reply[T]{err: err}
	}
	problem := new(Problem)
	if json.Unmarshal(body, problem) != nil || problem.Code == "" {
		// An intermediary has responded.
		problem = nil
	}
	refused := reply[T]{status: response.StatusCode, problem: problem}
	if response.Request != nil {
		refused.endpoint = response.Request.URL.Scheme + "://" + response.Request.URL.Host
	}
	return refused
}

// refusalText returns the status of a refusal and its origin.
func (a reply[T]) refusalText() string {
	if a.endpoint == "" {
		return "status " + strconv.Itoa(a.status)
	}
	return a.endpoint + ": status " + strconv.Itoa(a.status)
}

// sessionUnknown is the code of a refusal: no node of the service's log issued the session token.
const sessionUnknown = "session_unknown"

// isSessionUnknown reports whether the request was refused because of its session token.
func (a reply[T]) isSessionUnknown() bool {
	return a.problem != nil && a.problem.Code == sessionUnknown
}

func documentOf[T any](body []byte) (*T, error) {
	data := new(T)
	return data, json.Unmarshal(body, data)
}

// lost returns why the outcome of a commit is not known; nil if the reply contains it, or nothing was sent.
func (a reply[T]) lost() error {
	switch {
	case a.err != nil && !a.neverSent:
		return a.err
	// 409: the same id is waiting for its verdict. The others do not reveal whether the commit was accepted. Nor does an
	// error of a server other than Tribunal, such as the 503 of a proxy whose connection broke.
	case slices.Contains([]int{409, 500, 502, 504}, a.status), a.status >= 500 && a.problem == nil:
		return errors.New(a.refusalText())
	}
	return nil
}

// settled returns the data of a reply, or the corresponding error.
func settled[T any](a reply[T]) (*T, error) {
	switch {
	case a.data != nil:
		return a.data, nil
	case a.garbled:
		var known *ServerMisbehaved
		if errors.As(a.err, &known) {
			return nil, known
		}
		return nil, misbehaved("%v", a.err)
	case a.mistake != "":
		return nil, misuse("%s", a.mistake)
	case a.err != nil && a.ended != nil:
		// Not *Unavailable, which would make the caller repeat a request whose context has ended.
		return nil, a.ended
	case a.err != nil:
		return nil, &Unavailable{Problem: a.problem, Err: a.err}
	case a.problem != nil:
		return nil, errorOf(*a.problem)
	case a.status >= 500:
		return nil, &Unavailable{Err: errors.New(a.refusalText())}
	}
	return nil, misbehaved("%s without a problem document: is this the address of Tribunal?", a.refusalText())
}

func verdict(a reply[wire.TxnOutcome]) (Verdict, error) {
	outcome, err := settled(a)
	if err != nil {
		return nil, err
	}
	// An item of a batch has no header of its own.
	replayed := a.header.Get("Idempotency-Replayed") == "true" || given(outcome.Replayed)
	return verdictOf(outcome, replayed, a.header.Get("Traceparent"))
}

// forgotten lists the codes of a commit whose id an earlier request may have used: the service no longer has its verdict.
var forgotten = []string{"txn_id_forgotten", "verdict_truncated"}

// decided returns the verdict of a commit from a reply. The commit was accepted if the service answered without an
// error: if the answer cannot be understood, a status request would get the same answer.
func decided(txnID string, a reply[wire.TxnOutcome]) (Verdict, error) {
	found, err := verdict(a)
	var unexpected *ServerMisbehaved
	isForgotten := a.problem != nil && slices.Contains(forgotten, a.problem.Code)
	if isForgotten || a.data != nil && errors.As(err, &unexpected) {
		return nil, &OutcomeUnknown{txnID, err}
	}
	return found, err
}
