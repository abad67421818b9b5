package tribunal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"tribunal.internal/client/wire"
)

const (
	// linkLineBytesMax bounds a line of the response.
	linkLineBytesMax = 64 << 20
	// linkHeartbeat is the interval of the service's heartbeats.
	linkHeartbeat = 15 * time.Second
)

var (
	// errRepeated: the id is already waiting for its reply.
	errRepeated = errors.New("the id is in flight")
	// errOver: the link accepts no more lines.
	errOver = errors.New("the link is over")
)

// delivered is the result of one line.
type delivered struct {
	reply reply[wire.TxnOutcome]
	// notTaken is set if the service certainly did not accept the line.
	notTaken error
}

// A link is one connection of a commit stream, to one endpoint: lines out, replies in, each for the caller that waits
// for it.
//
// Callers append to one buffer, which the connection takes whenever it has room: lines that are written at the same
// time are sent together. Every line that was written is answered exactly once, at the latest when the link is over.
type link struct {
	endpoint int
	cancel   context.CancelFunc
	// silence ends the link if nothing arrives for too long.
	silence *time.Timer

	mutex sync.Mutex
	// changed is signalled when there are lines, or no more will follow.
	changed *sync.Cond
	// lines has the lines that the connection has not taken yet.
	lines []byte
	// written counts lines; appended and taken count the bytes of all lines, and those that the connection has taken.
	written, appended, taken uint64
	// waiting has the lines without a reply, by id in lower case.
	waiting        map[string]waitingLine
	finished, over bool
	// released is set if the link was finished by its stream, so that its end is no failure.
	released bool
	// arrivedAt is when data last arrived.
	arrivedAt time.Time
}

type waitingLine struct {
	number uint64
	// start is the number of bytes of the lines before it.
	start uint64
	// reply has room for it, so that a caller that left does not block the others.
	reply chan delivered
	// left is called when the line has a reply that no caller waits for.
	left func()
}

// answer gives a line its reply.
func (w waitingLine) answer(with delivered) {
	w.reply <- with
	if w.left != nil {
		w.left()
	}
}

// linkEnd is how a link ended, for the lines that still wait.
type linkEnd struct {
	// reply answers the lines that the service may have accepted.
	reply reply[wire.TxnOutcome]
	// upto is the last line that it may have accepted.
	upto uint64
}

// linkLine is a line of the response: an outcome or an event.
type linkLine struct {
	wire.TxnOutcome
	Event string  `json:"event"`
	Lines *string `json:"lines"`
}

// startLink connects to the endpoint in use, in a goroutine of its own.
func startLink(c *Client) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{endpoint: c.endpoints.current(), cancel: cancel, waiting: map[string]waitingLine{}, arrivedAt: time.Now()}
	l.changed = sync.NewCond(&l.mutex)
	l.silence = time.AfterFunc(c.options.Timeout, l.giveUp)
	go func() {
		defer cancel()
		defer l.silence.Stop()
		end := l.exchange(ctx, c)
		// Recorded before its callers continue elsewhere.
		if failureOf(end.reply) != nil && !l.isReleased() {
			c.endpoints.failed(l.endpoint)
		}
		l.end(end)
	}()
	return l
}

func (l *link) isOver() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.over
}

func (l *link) isReleased() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.released
}

// isSilentSince reports whether nothing has arrived since a time.
func (l *link) isSilentSince(since time.Time) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.arrivedAt.Before(since)
}

// release ends the request permanently. Replies to written lines still arrive.
func (l *link) release() {
	l.mutex.Lock()
	l.released = true
	l.mutex.Unlock()
	l.finish()
}

// write writes a line; its reply comes on the channel.
func (l *link) write(txnID string, line []byte) (<-chan delivered, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.over {
		return nil, errOver
	}
	id := strings.ToLower(txnID)
	if _, waits := l.waiting[id]; waits {
		return nil, errRepeated
	}
	l.written++
	comes := make(chan delivered, 1)
	l.waiting[id] = waitingLine{number: l.written, start: l.appended, reply: comes}
	l.appended += uint64(len(line))
	l.lines = append(l.lines, line...)
	l.changed.Signal()
	return comes, nil
}

// abandon arranges that left is called when a line gets a reply after its caller has left. It returns false if the line
// already has its reply.
func (l *link) abandon(txnID string, comes <-chan delivered, left func()) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	id := strings.ToLower(txnID)
	waits, found := l.waiting[id]
	if !found || waits.reply != comes {
		return false
	}
	waits.left = left
	l.waiting[id] = waits
	return true
}

// finish ends the request. Replies to written lines still arrive.
func (l *link) finish() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.finished = true
	l.changed.Broadcast()
}

// giveUp ends a link that is silent: neither replies nor heartbeats arrive.
func (l *link) giveUp() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	// Further commits need another link at once.
	l.over = true
	l.changed.Broadcast()
	l.cancel()
}

// Read hands lines to the connection.
func (l *link) Read(into []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for len(l.lines) == 0 {
		if l.finished || l.over {
			return 0, io.EOF
		}
		l.changed.Wait()
	}
	read := copy(into, l.lines)
	l.lines = l.lines[read:]
	l.taken += uint64(read)
	if len(l.lines) == 0 {
		l.lines = nil
	}
	return read, nil
}

// Close is called by the connection when it reads no more lines.
func (l *link) Close() error {
	l.finish()
	return nil
}

func (l *link) exchange(ctx context.Context, c *Client) linkEnd {
	parameters := wire.CommitStreamParams{}
	if c.options.ClientName != "" {
		parameters.TribunalClient = &c.options.ClientName
	}
	response, err := c.streams[l.endpoint].CommitStreamWithBody(ctx, &parameters, "application/x-ndjson", l)
	if err != nil {
		return linkEnd{lostRequest[wire.TxnOutcome](err), math.MaxUint64}
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return linkEnd{refusal[wire.TxnOutcome](response), math.MaxUint64}
	}
	if err := foreignType(response); err != nil {
		return lostLink(err)
	}
	c.endpoints.works(l.endpoint)
	silenceMax := c.options.Timeout + linkHeartbeat
	l.silence.Reset(silenceMax)
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(nil, linkLineBytesMax)
	for scanner.Scan() {
		l.silence.Reset(silenceMax)
		end, err := l.arrived(scanner.Bytes())
		if err != nil {
			return lostLink(err)
		}
		if end != nil {
			return *end
		}
	}
	if scanner.Err() != nil {
		return lostLink(scanner.Err())
	}
	return lostLink(errors.New("the stream broke off"))
}

func lostLink(err error) linkEnd {
	return linkEnd{reply[wire.TxnOutcome]{err: err}, math.MaxUint64}
}

// arrived hands a line to the caller that waits for it. If the line ends the link, it returns that end.
func (l *link) arrived(text []byte) (*linkEnd, error) {
	line := new(linkLine)
	if err := json.Unmarshal(text, line); err != nil {
		return nil, err
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.arrivedAt = time.Now()
	switch line.Event {
	case "heartbeat":
		return nil, nil
	case "end":
		end := lostLink(errors.New("the service ended the stream: " + string(given(line.Reason))))
		if upto, err := strconv.ParseUint(given(line.Lines), 10, 64); err == nil {
			end.upto = upto
		}
		return &end, nil
	}
	id := strings.ToLower(given(line.TxnID))
	if line.TxnID == nil && line.Problem != nil && line.Problem.Line != nil {
		// The service could not read the id, so it reports the number of the line.
		for txnID, waits := range l.waiting {
			if waits.number == uint64(*line.Problem.Line) {
				id = txnID
			}
		}
	}
	if waits, found := l.waiting[id]; found {
		delete(l.waiting, id)
		waits.answer(delivered{reply: singleOf(&line.TxnOutcome, nil)})
	}
	return nil, nil
}

// end answers the lines that still wait; the link accepts no more.
func (l *link) end(end linkEnd) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.over, l.lines = true, nil
	l.changed.Broadcast()
	// Without a connection nothing was accepted, and the reason is worth more than another attempt.
	refused := end.reply.neverSent || end.reply.status != 0
	for _, waits := range l.waiting {
		mayBeTaken := waits.start < l.taken && waits.number <= end.upto
		switch {
		case refused || mayBeTaken:
			waits.answer(delivered{reply: end.reply})
		case end.reply.mistake != "":
			waits.answer(delivered{reply: reply[wire.TxnOutcome]{err: end.reply.err, mistake: end.reply.mistake, neverSent: true}})
		default:
			waits.answer(delivered{notTaken: end.reply.err})
		}
	}
	l.waiting = nil
}
