package tribunal

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
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
	Op  wire.WriteOp
	Key string
	// Value is the new value of the row as JSON; the delta of an add; nil for a delete.
	Value json.RawMessage
}

// LogOptions configures a log reader.
type LogOptions struct {
	// After is the offset: the position of the last record that was processed. 0 reads from the beginning.
	After LSN
	// Log is the log that After belongs to: the [LogReader.LogID] of the reader that returned it. If the service's log has
	// been salvaged or replaced since, reads fail with the code log_replaced. Empty accepts any log.
	Log string
	// Wait is how long one request waits for a record; 0 means 10 s, a negative value does not wait.
	Wait time.Duration
	// PageMax bounds the records of one response; 0 means 1000.
	PageMax int
}

// LogReader reads a store's log in order. Store [LogReader.Offset] and [LogReader.LogID] together with the results of your
// processing. To resume, pass them as After and Log.
type LogReader struct {
	client  *Client
	store   string
	options LogOptions
	offset  LSN
	log     string
	head    LSN
	page    []LogRecord
}

// Log returns a reader of a store's log.
func (c *Client) Log(store string, options LogOptions) *LogReader {
	if options.Wait == 0 {
		options.Wait = 10 * time.Second
	}
	if options.PageMax == 0 {
		options.PageMax = 1000
	}
	return &LogReader{client: c, store: store, options: options, offset: options.After, log: options.Log}
}

// Offset is the position of the last record returned.
func (r *LogReader) Offset() LSN { return r.offset }

// LogID is the log that the offset belongs to; empty until the first response, unless it was set.
func (r *LogReader) LogID() string { return r.log }

// Head is the last position of the log, as of the last request.
func (r *LogReader) Head() LSN { return r.head }

// Next returns the next record, or io.EOF if none arrives in time; it may be called again after that. It retries while the
// service is unavailable, within the client's RetryPolicy.
func (r *LogReader) Next(ctx context.Context) (*LogRecord, error) {
	if len(r.page) == 0 {
		if err := r.fetch(ctx); err != nil {
			return nil, err
		}
		if len(r.page) == 0 {
			return nil, io.EOF
		}
	}
	record := r.page[0]
	r.page = r.page[1:]
	r.offset = record.LSN
	return &record, nil
}

// All yields the records up to the end of the log: until none arrives in time.
func (r *LogReader) All(ctx context.Context) iter.Seq2[*LogRecord, error] {
	return r.each(ctx, true)
}

// Follow yields records until the context ends or an error occurs.
func (r *LogReader) Follow(ctx context.Context) iter.Seq2[*LogRecord, error] {
	return r.each(ctx, false)
}

func (r *LogReader) each(ctx context.Context, ends bool) iter.Seq2[*LogRecord, error] {
	return func(yield func(*LogRecord, error) bool) {
		for {
			record, err := r.Next(ctx)
			if errors.Is(err, io.EOF) {
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

func (r *LogReader) fetch(ctx context.Context) error {
	after := strconv.FormatUint(uint64(r.offset), 10)
	limit, wait := int32(r.options.PageMax), milliseconds(r.options.Wait)
	parameters := wire.LogPullParams{Store: r.store, After: &after, Limit: &limit, WaitMs: &wait}
	if r.log != "" {
		parameters.Log = &r.log
	}
	page, err := retrying(ctx, r.client, func() (*wire.LogPage, error) {
		return settled(ask[wire.LogPage](ctx, r.client, r.options.Wait, func(ctx context.Context) (*response, error) {
			return r.client.wire.LogPull(ctx, &parameters)
		}))
	})
	if err != nil {
		return err
	}
	return r.take(page)
}

// take converts the records of a page and checks that they follow each other without a gap.
func (r *LogReader) take(page *wire.LogPage) error {
	fields := reader{}
	r.head, r.log = LSN(fields.number(&page.HeadLsn)), page.Log
	records := make([]LogRecord, 0, len(page.Records))
	due := r.offset
	for _, record := range page.Records {
		due++
		if LSN(fields.number(&record.Lsn)) != due || LSN(fields.number(&record.PrevLsn)) != due-1 {
			return misbehaved("log record %s (after %s) where %d was expected", record.Lsn, record.PrevLsn, due)
		}
		writes := make([]LogWrite, 0, len(record.Writes))
		for _, write := range record.Writes {
			key, ok, err := keyOf(write.Key, write.KeyB64)
			if err != nil {
				return err
			}
			if !ok {
				return misbehaved("log record %d has a row without a key", due)
			}
			writes = append(writes, LogWrite{write.Op, key, valueOf(write.Value, write.ValueB64)})
		}
		records = append(records, LogRecord{
			LSN:         due,
			Epoch:       Epoch(fields.number(&record.Epoch)),
			CSN:         CSN(fields.number(&record.Csn)),
			Version:     Version(fields.number(&record.Version)),
			TxnID:       record.TxnID,
			Store:       record.Store,
			Traceparent: given(record.Traceparent),
			Writes:      writes,
		})
	}
	if fields.err == nil {
		r.page = records
	}
	return fields.err
}

// valueOf merges the two wire fields of a value. A binary value keeps the form in which it is stored.
func valueOf(value json.RawMessage, inBase64 *string) json.RawMessage {
	if inBase64 == nil {
		return value
	}
	return json.RawMessage(`{"$b64":` + strconv.Quote(*inBase64) + `}`)
}
