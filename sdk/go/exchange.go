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

// reply is a response of 2xx, or a status with a problem, or neither.
type reply[T any] struct {
	data   *T
	header http.Header
	// status is that of a refusal, of endpoint. Without a problem it did not come from the service, but from something in
	// its place.
	status   int
	problem  *Problem
	endpoint string
	// err is why there is no response, or none that can be read.
	err error
	// ended is the error of the caller's context if that is why there is no response.
	ended     error
	neverSent bool
	// mistake is what is wrong with the address or the trust, if that is known: a retry cannot help.
	mistake string
	// garbled is set if the response does not fit the API.
	garbled bool
}

// call makes one request of one endpoint.
type call func(context.Context, *wire.Client) (*response, error)

// ask makes one request, within the timeout.
func ask[T any](ctx context.Context, c *Client, wait time.Duration, request call) reply[T] {
	return askUntil[T](ctx, c, wait, time.Time{}, request)
}

// askUntil makes one request, within the timeout, and until some time if it is not zero.
func askUntil[T any](ctx context.Context, c *Client, wait time.Duration, until time.Time, request call) reply[T] {
	return askOn(ctx, c, c.failover(wait).until(until), documentOf[T], request)
}

// askOn makes one request, of one endpoint after another, until one answers or no attempt is left. The response is read
// by the given function.
func askOn[T any](ctx context.Context, c *Client, f *failover, read func([]byte) (*T, error), request call) reply[T] {
	for timeout, again := f.next(ctx); again && ctx.Err() == nil; timeout, again = f.next(ctx) {
		answer := exchange(ctx, timeout, read, c.wires[f.at], request)
		// The caller has given up, and the endpoint has not failed.
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

// exchange makes one request of one endpoint.
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
// request: that is not the caller's, for which errors.Is would take it.
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

// foreignType returns an error if the content type of a response is none of the service's: it is of something in its
// place, such as the login page of a proxy.
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
		// Not wrapped: that of a caller is the end of a log.
		err = fmt.Errorf("%v", err)
	}
	return reply[T]{err: err, neverSent: neverSent, mistake: mistake}
}

// mistakeOf tells what is wrong with the address or the trust, if that is why there is no response, and whether that
// was found before the request was sent. A commit may have been sent in other cases: something on the way may answer in
// its own way.
func mistakeOf(err error) (mistake string, neverSent bool) {
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	// Only the first record of a connection, which is before any request, has it.
	isFirst := errors.As(err, &noTLS) && noTLS.Conn != nil
	switch {
	case errors.As(err, &certificate):
		return fmt.Sprintf("the server's certificate is not trusted: %v; name its authority in CAFile", err), true
	case errors.Is(err, http.ErrSchemeMismatch), isFirst:
		// net/http does not tell at which record it found the mismatch.
		return fmt.Sprintf("%v: does the service speak TLS there? Is its address http://?", err), isFirst
	case strings.Contains(err.Error(), tlsAlert):
		return fmt.Sprintf("%v: does the service speak TLS there? Then use https://", err), false
	}
	return "", false
}

// tlsAlert is in the error of net/http about a response that is an alert of TLS: the service takes no plain text.
const tlsAlert = `malformed HTTP response "\x15\x03`

// endedReply is the reply to a request that its caller no longer waits for.
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

// refusalText returns the status of a refusal, and where it came from.
func (a reply[T]) refusalText() string {
	if a.endpoint == "" {
		return "status " + strconv.Itoa(a.status)
	}
	return a.endpoint + ": status " + strconv.Itoa(a.status)
}

// sessionUnknown is the code of a refusal: no node of the service's log has issued the session token.
const sessionUnknown = "session_unknown"

// isSessionUnknown reports whether the request was refused because of its session token.
func (a reply[T]) isSessionUnknown() bool {
	return a.problem != nil && a.problem.Code == sessionUnknown
}

func documentOf[T any](body []byte) (*T, error) {
	data := new(T)
	return data, json.Unmarshal(body, data)
}

// lost returns why the outcome of a commit is not known; nil if the reply tells it, or nothing was sent.
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

// settled returns the data of a reply, or the error that it amounts to.
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
		// Not *Unavailable, which would have the caller repeat a request whose context has ended.
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

// decided returns the verdict of a commit from a reply. The commit was taken if the service has answered without an
// error: if the answer cannot be understood, another request for its status would get the same.
func decided(txnID string, a reply[wire.TxnOutcome]) (Verdict, error) {
	found, err := verdict(a)
	var unexpected *ServerMisbehaved
	if a.data != nil && errors.As(err, &unexpected) {
		return nil, &OutcomeUnknown{txnID, err}
	}
	return found, err
}
