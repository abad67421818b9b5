package tribunal

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"
	"runtime"
	"strconv"
	"time"

	"tribunal.internal/client/wire"
)

// LogRecord holds the writes of one committed transaction in one store.
type LogRecord struct {
	// LSN is the position in the log; positions have no gaps.
	LSN LSN
	// Epoch is the epoch that committed the transaction.
	Epoch Epoch
	// CSN is the arrival stamp.
	CSN CSN
	// Version is the version of every row that the transaction wrote.
	Version Version
	TxnID   string
	Store   string
	// Traceparent is the W3C trace context of the commit request.
	Traceparent string
	Writes      []LogWrite
}

// LogWrite is the write of one row.
type LogWrite struct {
	// Op is one of wire.WriteOp, or another one of a newer service.
	Op  wire.WriteOp
	Key string
	// Value is the new value of the row as JSON; the delta of an add; nil for a delete.
	Value json.RawMessage
}

// LogOptions configures a log reader.
type LogOptions struct {
	// After is the offset: the position of the last processed record. 0 reads from the beginning.
	After LSN
	// Log is the log that After belongs to: the [LogReader.LogID] of the reader that returned it. If the service's log has
	// been salvaged or replaced since, reads fail with the code log_replaced. Empty accepts any log.
	Log string
	// Wait is how long Next waits for a record; 0 means 10 s, a negative value does not wait. Follow, which always waits
	// for further records, then uses 10 s.
	Wait time.Duration
	// PageMax bounds the records of one response, at most 10,000; 0 is no bound.
	PageMax int
	// ReconnectFor is how long Follow tries to reach an endpoint before it returns the last error; 0 means 5 min.
	ReconnectFor time.Duration
}

// logWait is the default time that a reader waits for a record.
const logWait = 10 * time.Second

// reconnecting is the retry policy of Follow.
var reconnecting = RetryPolicy{AttemptsMax: math.MaxInt, WaitMin: 20 * time.Millisecond, WaitMax: 2 * time.Second}

// LogReader reads a store's log in order, from a stream that Next opens, and reopens if the connection is lost. Store
// [LogReader.Offset] and [LogReader.LogID] together with the results of your processing. To resume, pass them as After
// and Log.
//
// It is not safe for concurrent use: to end a Next that waits in another goroutine, end its context. A record counts as
// read once it was returned, even if the loop over [LogReader.All] or [LogReader.Follow] ends there: to reread a record
// that could not be processed, create another reader with the preceding LSN.
type LogReader struct {
	_       noCopy
	client  *Client
	store   string
	options LogOptions
	offset  LSN
	log     string
	head    LSN
	epoch   Epoch
	// lostAt is the time since which Follow has tried to reach an endpoint; zero while a stream is open.
	lostAt time.Time
	// reached is set once the service has answered: until then, the address may be wrong.
	reached bool
	// open is separate from the reader, so that it can be closed once the reader is dropped.
	open *openedLog
}

// openedLog has the open stream of a reader, if there is one.
type openedLog struct{ stream *logStream }

func (o *openedLog) close() {
	if o.stream != nil {
		o.stream.close()
		o.stream = nil
	}
}

// Log returns a reader of a store's log.
func (c *Client) Log(store string, options LogOptions) *LogReader {
	if options.Wait == 0 {
		options.Wait = logWait
	}
	r := &LogReader{client: c, store: store, options: options, offset: options.After, log: options.Log, open: &openedLog{}}
	runtime.AddCleanup(r, (*openedLog).close, r.open)
	return r
}

// Offset is the position of the last record returned.
func (r *LogReader) Offset() LSN { return r.offset }

// LogID is the log that the offset belongs to; empty until the first response, unless it was set.
func (r *LogReader) LogID() string { return r.log }

// Head is the last position of the log, as of the last response: a few seconds old at most while records arrive.
func (r *LogReader) Head() LSN { return r.head }

// Epoch is an epoch up to which every commit was returned: a copy that has applied all records returned has everything that
// a snapshot of this epoch includes. It advances with records, and with heartbeats, which a call receives while it waits:
// every 5 s. 0 if nothing is known.
func (r *LogReader) Epoch() Epoch { return r.epoch }

// Close ends the stream. After io.EOF there is none. The reader can be used again.
func (r *LogReader) Close() { r.open.close() }

// Next returns the next record, or io.EOF if none arrives in time; it may be called again after that. It retries while
// the service is unavailable, within the client's RetryPolicy, for at most Wait and the client's Timeout. The stream
// stays open between two calls; see [LogReader.Close].
func (r *LogReader) Next(ctx context.Context) (*LogRecord, error) {
	wait := min(max(r.options.Wait, 0), durationMax)
	return r.next(ctx, time.Now().Add(wait+r.client.options.Timeout))
}

// next returns the next record. A zero until means Follow, which outlives a restart of the service.
func (r *LogReader) next(ctx context.Context, until time.Time) (*LogRecord, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	asked, whole := time.Now(), false
	var before error
	for failed := 1; ; failed++ {
		err := r.connect(ctx, asked, until, &whole)
		for err == nil {
			var line *logLine
			if line, err = r.open.stream.line(ctx, until); err != nil {
				break
			}
			r.lostAt, r.reached = time.Time{}, true
			if line.Event == "" {
				var record *LogRecord
				if record, err = r.take(&line.LogRecord); err == nil {
					return record, nil
				}
				break
			}
			err = r.follow(&line.logEvent, line.Epoch)
		}
		var unavailable *Unavailable
		isFault := errors.As(err, &unavailable) && (unavailable.Problem == nil || unavailable.Problem.Code != "quota_exceeded")
		if r.open.stream != nil && ctx.Err() == nil && isFault {
			// The next stream continues after the same record elsewhere: all endpoints have the same log. A quota is this
			// caller's, and no fault of its endpoint.
			r.client.endpoints.failed(r.open.stream.endpoint)
		}
		r.Close()
		switch {
		case ctx.Err() != nil:
			return nil, gaveUp(ctx, before)
		case errors.Is(err, errIdle) && whole:
			return nil, io.EOF
		case errors.Is(err, errIdle), errors.Is(err, errLimit):
			// The stream had ended before this call, or this call waits longer: there may be newer records.
			failed--
		case !errors.As(err, &unavailable):
			return nil, err
		default:
			pause, again := r.pause(failed, until, unavailable)
			if !again {
				return nil, err
			}
			if sleep(ctx, pause) != nil {
				return nil, gaveUp(ctx, err)
			}
			before = err
		}
	}
}

// pause draws the wait before the next attempt; false if that was the last one.
func (r *LogReader) pause(failed int, until time.Time, failure *Unavailable) (time.Duration, bool) {
	if failure.Problem != nil {
		r.reached = true
	}
	if !until.IsZero() {
		pause, again := r.client.options.Retry.wait(failed, failure.RetryAfter())
		return pause, again && time.Now().Add(pause).Before(until)
	}
	if r.lostAt.IsZero() {
		r.lostAt = time.Now()
	}
	limit := r.options.ReconnectFor
	if limit == 0 {
		limit = 5 * time.Minute
	}
	policy := reconnecting
	if !r.reached {
		policy = r.client.options.Retry
	}
	pause, again := policy.wait(failed, failure.RetryAfter())
	pause = min(pause, reconnecting.WaitMax)
	return pause, again && time.Since(r.lostAt)+pause < limit
}

// check returns an error if the log cannot be read.
func (r *LogReader) check() error {
	if r.options.ReconnectFor < 0 {
		return misuse("the option ReconnectFor is negative: %v; 0 means 5 min", r.options.ReconnectFor)
	}
	if r.options.PageMax < 0 {
		return misuse("the option PageMax is negative: %d; 0 is no bound", r.options.PageMax)
	}
	return errors.Join(checkText("name of a store", r.store), checkText("log", r.options.Log))
}

// connect opens a stream if there is none. It sets whole if the stream waits for records for all of Next's remaining
// time.
func (r *LogReader) connect(ctx context.Context, asked, until time.Time, whole *bool) error {
	if r.open.stream != nil {
		return nil
	}
	wait := r.options.Wait
	if until.IsZero() && wait <= 0 {
		// Follow would otherwise request the log continuously.
		wait = logWait
	}
	left := wait - time.Since(asked)
	*whole = left <= streamWaitMax
	stream, err := r.client.openLog(ctx, until, r.parameters(min(left, streamWaitMax)))
	r.open.stream = stream
	return err
}

// All yields the records up to the end of the log: until none arrives in time.
func (r *LogReader) All(ctx context.Context) iter.Seq2[*LogRecord, error] {
	return r.each(ctx, true)
}

// Follow yields records until the context ends or an error occurs. It outlives a restart of the service: it reconnects,
// with waits of at most 2 s, until no endpoint could be reached for [LogOptions.ReconnectFor].
func (r *LogReader) Follow(ctx context.Context) iter.Seq2[*LogRecord, error] {
	return r.each(ctx, false)
}

func (r *LogReader) each(ctx context.Context, ends bool) iter.Seq2[*LogRecord, error] {
	return func(yield func(*LogRecord, error) bool) {
		defer r.Close()
		r.lostAt = time.Time{}
		for {
			var record *LogRecord
			var err error
			if ends {
				record, err = r.Next(ctx)
			} else {
				record, err = r.next(ctx, time.Time{})
			}
			if err == io.EOF {
				if ends {
					return
				}
				continue
			}
			if !yield(record, err) || err != nil {
				return
			}
		}
	}
}

// take converts a record, which must follow the preceding one without a gap.
func (r *LogReader) take(found *wire.LogRecord) (*LogRecord, error) {
	fields, due := reader{}, r.offset+1
	if LSN(fields.number(&found.Lsn)) != due || LSN(fields.number(&found.PrevLsn)) != due-1 {
		return nil, misbehaved("log record %s (after %s) where %d was expected", found.Lsn, found.PrevLsn, due)
	}
	record := &LogRecord{
		LSN:         due,
		Epoch:       Epoch(fields.number(&found.Epoch)),
		CSN:         CSN(fields.number(&found.Csn)),
		Version:     Version(fields.number(&found.Version)),
		TxnID:       found.TxnID,
		Store:       found.Store,
		Traceparent: given(found.Traceparent),
		Writes:      make([]LogWrite, 0, len(found.Writes)),
	}
	for _, write := range found.Writes {
		key, ok, err := keyOf(write.Key, write.KeyB64)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, misbehaved("log record %d has a row without a key", due)
		}
		record.Writes = append(record.Writes, LogWrite{write.Op, key, valueOf(write.Value, write.ValueB64)})
	}
	if fields.err != nil {
		return nil, fields.err
	}
	if stated := given(found.Checksum); stated != "" && stated != checksum(found, record.Writes) {
		return nil, misbehaved("log record %d has checksum %s, not %s", due, checksum(found, record.Writes), stated)
	}
	r.offset, r.head = due, max(r.head, due)
	if record.Epoch > 0 {
		// Further records of its own epoch may follow.
		r.epoch = max(r.epoch, record.Epoch-1)
	}
	return record, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum computes the checksum of a record, which covers storage and transport.
func checksum(record *wire.LogRecord, writes []LogWrite) string {
	sum := uint32(0)
	piece := func(bytes string) {
		length := binary.LittleEndian.AppendUint32(nil, uint32(len(bytes)))
		sum = crc32.Update(crc32.Update(sum, castagnoli, length), castagnoli, []byte(bytes))
	}
	for _, text := range []string{record.Lsn, record.Epoch, record.Csn, record.Version, record.TxnID} {
		piece(text)
	}
	for _, write := range writes {
		piece(string(write.Op))
		piece(write.Key)
		piece(string(write.Value))
	}
	return fmt.Sprintf("%08x", sum)
}

// valueOf merges the two wire fields of a value. A binary value keeps the form in which it is stored.
func valueOf(value json.RawMessage, inBase64 *string) json.RawMessage {
	if inBase64 == nil {
		return value
	}
	return json.RawMessage(`{"$b64":` + strconv.Quote(*inBase64) + `}`)
}
