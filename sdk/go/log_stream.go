package tribunal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"tribunal.internal/client/wire"
)

const (
	// heartbeat is the interval of heartbeats requested from the service, which may choose a shorter one.
	heartbeat = 5 * time.Second
	// streamWaitMax is the longest time that the service waits for a record.
	streamWaitMax = time.Minute
	// lineBytesMax is the maximum length of a line. A record is at most as long as a request, 10 MiB, plus its frame.
	lineBytesMax = 32 << 20
)

// logStream is the NDJSON stream of a store's log. It reads from the connection only when a line is requested, so a
// slow reader slows down the stream, and memory stays bounded.
type logStream struct {
	// what names the content: the log, or the state image.
	what string
	// endpoint is the one that sends it.
	endpoint int

	body   io.ReadCloser
	lines  *bufio.Reader
	cancel context.CancelFunc
	// silence cancels the stream if nothing arrives for too long while a line is awaited.
	silence    *time.Timer
	silenceMax time.Duration
}

// logEvent is a line of a stream that is not a record.
type logEvent struct {
	Event   string   `json:"event"`
	Log     *string  `json:"log"`
	HeadLsn *string  `json:"head_lsn"`
	Reason  string   `json:"reason"`
	Problem *Problem `json:"problem"`
}

// logLine is a line of a stream: an event or a record.
type logLine struct {
	logEvent
	wire.LogRecord
}

// openLog opens a stream. The context ends the call, but not the stream.
func (c *Client) openLog(ctx context.Context, until time.Time, parameters *wire.LogPullParams) (*logStream, error) {
	beat := milliseconds(heartbeat)
	parameters.HeartbeatMs = &beat
	silenceMax := min(c.options.Timeout/time.Duration(len(c.wires)), 3*heartbeat/2) + heartbeat
	return c.openStream(ctx, until, "log", silenceMax, func(ctx context.Context, at int, ndjson wire.RequestEditorFn) (*response, error) {
		return c.logs[at].LogPull(ctx, parameters, ndjson)
	})
}

// opening sends the request for a stream to one endpoint.
type opening func(ctx context.Context, at int, ndjson wire.RequestEditorFn) (*response, error)

// openStream opens a stream. The context ends the call, but not the stream; so does a deadline that is not zero.
func (c *Client) openStream(
	ctx context.Context, until time.Time, what string, silenceMax time.Duration, open opening,
) (*logStream, error) {
	calls := c.failover(0).until(until)
	for timeout, again := calls.next(ctx); again && ctx.Err() == nil; timeout, again = calls.next(ctx) {
		stream, answer := c.openStreamAt(ctx, calls.at, timeout, open)
		if stream != nil {
			stream.what, stream.silenceMax = what, silenceMax
		}
		switch {
		case ctx.Err() != nil:
			if stream != nil {
				stream.close()
			}
			return nil, ctx.Err()
		case stream != nil:
			calls.isOver(nil)
			return stream, nil
		case calls.isTruncated(answer.status, answer.problem):
		case calls.isOver(failureOf(answer)):
			if answer.data != nil {
				return nil, misbehaved("a page where a stream was expected")
			}
			_, err := settled(answer)
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	_, err := settled(nowhere[wire.LogPage](calls))
	return nil, err
}

// openStreamAt opens a stream of one endpoint; if there is none, it returns the endpoint's reply.
func (c *Client) openStreamAt(
	ctx context.Context, endpoint int, timeout time.Duration, open opening,
) (*logStream, reply[wire.LogPage]) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &logStream{endpoint: endpoint, cancel: cancel}
	ndjson := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Accept", "application/x-ndjson")
		return nil
	}
	defer context.AfterFunc(ctx, cancel)()
	late := time.AfterFunc(timeout, cancel)
	defer late.Stop()
	response, err := open(lasting, endpoint, ndjson)
	if err == nil && response.StatusCode == http.StatusOK && foreignType(response) == nil {
		s.body, s.lines = response.Body, bufio.NewReaderSize(response.Body, 64<<10)
		s.silence = time.AfterFunc(time.Hour, cancel)
		s.silence.Stop()
		return s, reply[wire.LogPage]{}
	}
	defer cancel()
	if err != nil {
		answer := lostRequest[wire.LogPage](err)
		if ctx.Err() == nil && errors.Is(err, context.Canceled) {
			answer.err = timedOut(timeout, err)
		}
		return nil, answer
	}
	return nil, replyOf(response, documentOf[wire.LogPage])
}

// line returns the next line of a log.
func (s *logStream) line(ctx context.Context, until time.Time) (*logLine, error) {
	text, err := s.text(ctx, until)
	if err != nil {
		return nil, err
	}
	line := new(logLine)
	if err := json.Unmarshal(text, line); err != nil {
		return nil, misbehaved("a line of the log cannot be parsed: %v", err)
	}
	return line, nil
}

// text returns the bytes of the next line, which are valid until the next call. A line that has not arrived by the
// deadline, unless that is zero, interrupts the stream.
func (s *logStream) text(ctx context.Context, until time.Time) ([]byte, error) {
	defer context.AfterFunc(ctx, s.cancel)()
	defer s.silence.Stop()
	silence := s.silenceMax
	if !until.IsZero() {
		silence = min(silence, max(time.Until(until), time.Millisecond))
	}
	text, err := s.read(silence)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, io.EOF):
		return nil, &Unavailable{Err: fmt.Errorf("the %s stream was interrupted", s.what)}
	case err != nil:
		var known *ServerMisbehaved
		if errors.As(err, &known) {
			return nil, known
		}
		if errors.Is(err, context.Canceled) {
			err = timedOut(silence, err)
		}
		return nil, &Unavailable{Err: err}
	}
	return text, nil
}

// read returns the bytes of the next line. Nothing can be read after an error.
func (s *logStream) read(silence time.Duration) ([]byte, error) {
	var text []byte
	for {
		s.silence.Reset(silence)
		piece, err := s.lines.ReadSlice('\n')
		switch {
		case err == nil && text == nil:
			return piece, nil
		case err == nil:
			return append(text, piece...), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(text) > lineBytesMax:
			return nil, misbehaved("a line of the %s has more than %d bytes", s.what, lineBytesMax)
		}
		text = append(text, bytes.Clone(piece)...)
	}
}

func (s *logStream) close() {
	s.cancel()
	s.silence.Stop()
	_ = s.body.Close()
}

// parameters returns the parameters of a request for the log after the offset.
func (r *LogReader) parameters(wait time.Duration) *wire.LogPullParams {
	after, waitMs := strconv.FormatUint(uint64(r.offset), 10), milliseconds(wait)
	parameters := &wire.LogPullParams{Store: r.store, After: &after, WaitMs: &waitMs}
	if r.log != "" {
		parameters.Log = &r.log
	}
	if r.options.PageMax > 0 {
		parameters.Limit = limitOf(r.options.PageMax)
	}
	return parameters
}

// errIdle is the end of a stream in which no record has arrived for the requested time.
var errIdle = errors.New("the stream was idle")

// errLimit is the end of a stream that had as many records as were requested.
var errLimit = errors.New("the stream has reached its limit")

// follow handles an event. It returns why the stream has ended; nil if it continues. The epoch is empty in events of
// earlier releases.
func (r *LogReader) follow(event *logEvent, epoch string) error {
	fields := reader{}
	if event.Log != nil {
		r.log = *event.Log
	}
	if event.HeadLsn != nil {
		r.head = LSN(fields.number(event.HeadLsn))
	}
	if epoch != "" {
		r.epoch = max(r.epoch, Epoch(fields.number(&epoch)))
	}
	switch {
	case fields.err != nil:
		return fields.err
	case event.Event != "end":
		return nil
	case event.Problem != nil && event.Problem.Code == "log_truncated" && len(r.client.endpoints.urls) > 1:
		// Another endpoint may have the records, so the next stream is requested from all of them.
		return errLimit
	case event.Problem != nil:
		return errorOf(*event.Problem)
	case event.Reason == "idle":
		return errIdle
	case event.Reason == "limit":
		return errLimit
	}
	return &Unavailable{Err: fmt.Errorf("the log stream has ended: %s", event.Reason)}
}
