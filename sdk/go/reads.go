package tribunal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tribunal.internal/client/wire"
)

// RowRead is a row to read.
type RowRead struct {
	Key string
	// Known is the version that the caller has cached, or 0. If it is still current, the value is not sent again.
	Known Version
}

// RowState is the result of reading a row.
type RowState struct {
	// Row is nil if the row does not exist or is unchanged.
	Row *Row
	// Unchanged is set if the row still has the version that the caller has cached.
	Unchanged bool
}

// RowReads are the results of reading rows, all at the same epoch.
type RowReads struct {
	// Applied is the epoch that the rows reflect: they include all of its commits, and none of later epochs.
	Applied Epoch
	// Session is a token for the [ReadOptions] of a later read that must reflect this epoch or a later one, also on
	// another node; empty if the service is too old to return one.
	Session string
	// Rows has one result per row, in the order of the request.
	Rows []RowState
}

// KeyRange has the keys from Start on, before End; an empty End is the end of the store.
type KeyRange struct {
	Start, End string
	// Limit bounds the number of rows; at most 10,000. 0 means 1,000.
	Limit int
}

const (
	// rangeLimitDefault is the limit of a range that has none.
	rangeLimitDefault = 1_000
	// rangeLimitMax is the largest limit that the service accepts.
	rangeLimitMax = 10_000
)

func (k KeyRange) withDefaults() KeyRange {
	if k.Limit == 0 {
		k.Limit = rangeLimitDefault
	}
	return k
}

// RangeRows has the rows of a range, in key order.
type RangeRows struct {
	Rows []Row
	// More is set if the range has more rows.
	More bool
}

// RangeReads are ranges, all read at the same epoch.
type RangeReads struct {
	// Applied is the epoch that they reflect: they include all of its commits, and none of later epochs.
	Applied Epoch
	// Session is a token for the [ReadOptions] of a later read that must reflect this epoch or a later one, also on
	// another node; empty if the service is too old to return one.
	Session string
	// Ranges has one result per range, in the order of the request.
	Ranges []RangeRows
}

// freshnessWaitDefault is the default time that the service waits for the commits that a request must include.
const freshnessWaitDefault = 5 * time.Second

// freshnessWait returns how long the service may wait for the commits that a request must include.
func freshnessWait(session *string, consistency *Consistency, wait time.Duration) time.Duration {
	if wait == 0 && (session != nil || given(consistency) == Fresh) {
		return freshnessWaitDefault
	}
	return wait
}

// Consistency is what the snapshots of a Begin, or the rows of a read, include.
type Consistency = wire.Consistency

// Fresh includes everything that any node of the cluster acknowledged to any client before the call.
const Fresh = wire.Fresh

// ReadOptions configures a read outside of transactions.
type ReadOptions struct {
	// Session is the token of a commit that the rows must include.
	Session string
	// Consistency is what the rows include: every commit that the node has acknowledged if empty; see [Fresh].
	Consistency Consistency
	// Wait is how long to wait until the rows include that; 0 means 5 s.
	Wait time.Duration
}

// check returns why the options cannot be used.
func (o ReadOptions) check() error {
	if o.Wait < 0 {
		return misuse("the option Wait is negative: %v; 0 means 5 s", o.Wait)
	}
	return checkText("session", o.Session)
}

// request returns a request with these options that reads nothing.
func (o ReadOptions) request() (body wire.ReadRequest) {
	if o.Session != "" {
		body.Session = &o.Session
	}
	if o.Consistency != "" {
		body.Consistency = &o.Consistency
	}
	if o.Wait > 0 {
		wait := milliseconds(o.Wait)
		body.WaitMs = &wait
	}
	return body
}

// groupOf returns the key of requests with the same freshness requirement and the same wait.
func groupOf(session *string, consistency *Consistency, wait *int32) string {
	return fmt.Sprintf("%q %q %d", given(session), given(consistency), given(wait))
}

// readItem is a read of one caller.
type readItem struct {
	store string
	// wait is how long to wait for the commits that the rows must include; 0 is the service's default.
	wait time.Duration
	// body has the options and the rows.
	body wire.ReadRequest
	// until is the deadline of the read, including its retries.
	until time.Time
}

// readItemOf creates a read: the timeout bounds all of its retries.
func (c *Client) readItemOf(store string, options ReadOptions) readItem {
	body := options.request()
	wait := freshnessWait(body.Session, body.Consistency, options.Wait)
	return readItem{store, options.Wait, body, time.Now().Add(min(wait, requestWaitMax) + c.options.Timeout)}
}

func (r readItem) group() string {
	return fmt.Sprintf("%q %s", r.store, groupOf(r.body.Session, r.body.Consistency, r.body.WaitMs))
}

// ReadRows reads rows of an embedded store outside any transaction: at most 10,000 rows, with at most 8 MiB of values
// in total. They include every commit that its node acknowledged before the call. While other read requests are in
// flight, the read may be queued and share a request; see [Options.NoCoalesce].
func (c *Client) ReadRows(ctx context.Context, store string, rows []RowRead) (*RowReads, error) {
	return c.ReadRowsWith(ctx, store, rows, ReadOptions{})
}

// ReadRowsWith reads rows as [Client.ReadRows] does, with options.
func (c *Client) ReadRowsWith(ctx context.Context, store string, rows []RowRead, options ReadOptions) (*RowReads, error) {
	if err := errors.Join(checkName("name of a store", store), options.check()); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return &RowReads{}, nil
	}
	read := make([]wire.RowRead, len(rows))
	for at, row := range rows {
		read[at].Key, read[at].KeyB64 = keyFields(row.Key)
		if row.Known != 0 {
			version := strconv.FormatUint(uint64(row.Known), 10)
			read[at].Version = &version
		}
	}
	asked := c.readItemOf(store, options)
	asked.body.Read = &read
	answer, err := c.current(ctx, asked, 0, func(asked readItem) (*wire.ReadResponse, error) {
		answer := shared[wire.ReadResponse]{refused: true}
		if bytes := bytesOf(read); !c.options.NoCoalesce && 0 < bytes && bytes <= bytesAlone {
			var err error
			terms := terms{group: asked.group(), bytes: bytes, until: asked.until}
			if answer, _, err = c.reads.submit(ctx, terms, asked); err == errLate {
				return nil, &Unavailable{Err: err}
			} else if err != nil {
				return nil, err
			}
		}
		if answer.refused {
			answer = c.sendRead(ctx, asked)
		}
		return settled(answer.reply)
	})
	if err != nil {
		return nil, err
	}
	found := given(answer.Rows)
	if len(found) != len(rows) {
		return nil, misbehaved("%d rows returned where %d were requested", len(found), len(rows))
	}
	fields := reader{}
	reads := &RowReads{
		Applied: Epoch(fields.number(&answer.Applied)), Session: given(answer.Session), Rows: make([]RowState, len(rows)),
	}
	for at := range found {
		version := Version(fields.number(found[at].Version))
		switch {
		case given(found[at].Unchanged):
			reads.Rows[at].Unchanged = true
		case version != 0:
			value := valueOf(found[at].Value, found[at].ValueB64)
			reads.Rows[at].Row = &Row{Key: rows[at].Key, Value: value, Version: version}
		}
	}
	return reads, fields.err
}

func (c *Client) sendRead(ctx context.Context, asked readItem) shared[wire.ReadResponse] {
	return shared[wire.ReadResponse]{reply: c.postRead(ctx, asked)}
}

// sendReads sends reads of one group as one request.
func (c *Client) sendReads(items []readItem) []shared[wire.ReadResponse] {
	rows := make([][]wire.RowRead, len(items))
	for at, item := range items {
		rows[at] = given(item.body.Read)
	}
	joined, asked := unite(rows), items[0]
	for _, item := range items {
		// A caller with an earlier deadline gives up before.
		asked.until = latest(asked.until, item.until)
	}
	asked.body.Read = &joined.rows
	// Not in a caller's context: a cancelled caller does not affect the others.
	answer := c.postRead(context.Background(), asked)
	return parts(answer, len(items), func(found *wire.ReadResponse) ([]wire.ReadResponse, error) {
		each, err := joined.apart(given(found.Rows))
		responses := make([]wire.ReadResponse, len(each))
		for at := range each {
			responses[at] = wire.ReadResponse{Applied: found.Applied, Session: found.Session, Rows: &each[at]}
		}
		return responses, err
	})
}

func (c *Client) postRead(ctx context.Context, asked readItem) reply[wire.ReadResponse] {
	wait := freshnessWait(asked.body.Session, asked.body.Consistency, asked.wait)
	return askUntil[wire.ReadResponse](ctx, c, wait, asked.until, func(ctx context.Context, at *wire.Client) (*response, error) {
		return at.ReadRows(ctx, asked.store, asked.body)
	})
}

// ReadRanges reads ranges of an embedded store outside any transaction: at most 256, with at most 8 MiB of values in
// total. They include every commit that its node acknowledged before the call.
func (c *Client) ReadRanges(ctx context.Context, store string, ranges []KeyRange) (*RangeReads, error) {
	return c.ReadRangesWith(ctx, store, ranges, ReadOptions{})
}

// ReadRangesWith reads ranges as [Client.ReadRanges] does, with options.
func (c *Client) ReadRangesWith(ctx context.Context, store string, ranges []KeyRange, options ReadOptions) (*RangeReads, error) {
	return c.rangesFrom(ctx, store, ranges, options, 0)
}

// rangesFrom reads ranges that must include an epoch of the store; the client's own commits if it is 0.
func (c *Client) rangesFrom(
	ctx context.Context, store string, ranges []KeyRange, options ReadOptions, least Epoch,
) (*RangeReads, error) {
	if err := errors.Join(checkName("name of a store", store), options.check()); err != nil {
		return nil, err
	}
	if len(ranges) == 0 {
		return &RangeReads{}, nil
	}
	read := make([]wire.RangeRead, len(ranges))
	for at, keys := range ranges {
		if err := checkLimit(keys.Limit); err != nil {
			return nil, err
		}
		read[at] = keys.withDefaults().wire()
	}
	asked := c.readItemOf(store, options)
	asked.body.Ranges = &read
	answer, err := c.current(ctx, asked, least, func(asked readItem) (*wire.ReadResponse, error) {
		return settled(c.postRead(ctx, asked))
	})
	if err != nil {
		return nil, err
	}
	found := given(answer.Ranges)
	if len(found) != len(ranges) {
		return nil, misbehaved("%d ranges returned where %d were requested", len(found), len(ranges))
	}
	fields := reader{}
	reads := &RangeReads{
		Applied: Epoch(fields.number(&answer.Applied)), Session: given(answer.Session), Ranges: make([]RangeRows, len(ranges)),
	}
	for at := range found {
		if reads.Ranges[at], err = rowsOf(found[at].Rows, found[at].More); err != nil {
			return nil, err
		}
	}
	return reads, fields.err
}

// page reads rows of a range, as many as the service returns at once. A transaction names its session and its snapshot
// of the store: the commit compares the range with later writes only, so rows older than the snapshot must not be
// returned.
func (c *Client) page(ctx context.Context, store string, keys KeyRange, session string, snapshot Epoch) (*RowPage, error) {
	reads, err := c.rangesFrom(ctx, store, []KeyRange{keys}, ReadOptions{Session: session}, snapshot)
	if err != nil {
		return nil, err
	}
	return &RowPage{Applied: reads.Applied, RangeRows: reads.Ranges[0]}, nil
}

// current repeats a read while the service is unavailable, or has not applied the epoch that it must include: by
// default (0), that of this client's latest commit to the store. A lagging node gets the commit's token and waits for
// it, unless the caller named one. No retry begins after the deadline of the read.
func (c *Client) current(
	ctx context.Context, asked readItem, least Epoch, send func(readItem) (*wire.ReadResponse, error),
) (*wire.ReadResponse, error) {
	namesSession := asked.body.Session != nil
	var before error
	for failed := 1; ; {
		found, err := send(asked)
		if err == nil {
			wanted := least
			if wanted == 0 {
				wanted = c.ownEpoch(asked.store)
			}
			fields := reader{}
			applied := Epoch(fields.number(&found.Applied))
			if fields.err != nil || applied >= wanted {
				return found, fields.err
			}
			if token := c.session.token([]string{asked.store}); !namesSession && token != "" {
				asked.body.Session = &token
			}
			err = &Unavailable{
				Err: fmt.Errorf("%s has applied epoch %d of store %s, not yet %d", c.Endpoint(), applied, asked.store, wanted),
			}
		}
		var refused *ClientMistake
		if !namesSession && asked.body.Session != nil && errors.As(err, &refused) && refused.Code() == sessionUnknown {
			// The log that contained this client's commits was replaced.
			c.session.forget(*asked.body.Session)
			asked.body.Session = nil
			continue
		}
		unavailable, isUnavailable := err.(*Unavailable)
		switch {
		case ctx.Err() != nil && err == ctx.Err():
			return nil, gaveUp(ctx, before)
		case ctx.Err() != nil || !isUnavailable:
			return nil, err
		}
		before = err
		pause, again := c.options.Retry.wait(failed, unavailable.RetryAfter())
		if !again || !time.Now().Add(pause).Before(asked.until) {
			return nil, err
		}
		if sleep(ctx, pause) != nil {
			return nil, gaveUp(ctx, err)
		}
		failed++
	}
}

// wire returns the wire form of a range.
func (k KeyRange) wire() wire.RangeRead {
	read := wire.RangeRead{Limit: limitOf(k.Limit)}
	if k.Start != "" {
		read.Start, read.StartB64 = keyFields(k.Start)
	}
	if k.End != "" {
		read.End, read.EndB64 = keyFields(k.End)
	}
	return read
}

func rowsOf(found []wire.Row, more bool) (RangeRows, error) {
	rows := RangeRows{Rows: make([]Row, len(found)), More: more}
	for at := range found {
		var err error
		if rows.Rows[at], err = rowOf(&found[at]); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

type rangeName struct {
	store string
	keys  KeyRange
}

// rangesToRead lists the ranges that Begin reads, and their wire forms.
func rangesToRead(ranges map[string][]KeyRange) (names []rangeName, asked []wire.RangeRead) {
	for store := range ranges {
		for _, keys := range ranges[store] {
			keys = keys.withDefaults()
			read := keys.wire()
			read.Store = &store
			names, asked = append(names, rangeName{store, keys}), append(asked, read)
		}
	}
	return names, asked
}

// keepRanges keeps the ranges that Begin has read.
func (t *Transaction) keepRanges(names []rangeName, found []wire.ReadRange) error {
	if len(found) != len(names) {
		return misbehaved("%d ranges returned where %d were requested", len(found), len(names))
	}
	for at := range found {
		rows, err := rowsOf(found[at].Rows, found[at].More)
		if err != nil {
			return err
		}
		t.fetchedRanges[names[at]] = rows
	}
	return nil
}

// rowsToRead lists the rows that Begin reads, and their wire forms.
func rowsToRead(keys map[string][]string) (names []rowName, asked []wire.RowRead) {
	for store := range keys {
		for _, key := range keys[store] {
			read := wire.RowRead{Store: &store}
			read.Key, read.KeyB64 = keyFields(key)
			names, asked = append(names, rowName{store, key}), append(asked, read)
		}
	}
	return names, asked
}

// keep stores the rows that Begin has read.
func (t *Transaction) keep(names []rowName, found []wire.ReadRow) error {
	if len(found) != len(names) {
		return misbehaved("%d rows returned where %d were requested", len(found), len(names))
	}
	fields := reader{}
	for at := range found {
		version := Version(fields.number(found[at].Version))
		t.fetched[names[at]] = seen{version: version, value: valueOf(found[at].Value, found[at].ValueB64)}
	}
	return fields.err
}

// GetMany reads rows of an embedded store as [Transaction.Get] does, with one request for all rows that the transaction
// has not read yet: at most 10,000 rows, with at most 8 MiB of values in total. The results are in the order of the
// keys; nil is an absent row.
func (t *Transaction) GetMany(ctx context.Context, store string, keys []string) ([]*Row, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	asked, missing := map[string]bool{}, []RowRead{}
	for _, key := range keys {
		if !asked[key] && !t.knows(rowName{store, key}) {
			asked[key], missing = true, append(missing, RowRead{Key: key})
		}
	}
	if len(missing) > 0 {
		if err := t.closing.err(); err != nil {
			return nil, err
		}
		reads, err := t.client.ReadRows(ctx, store, missing)
		if err != nil {
			return nil, err
		}
		for at, state := range reads.Rows {
			now := seen{}
			if state.Row != nil {
				now = seen{version: state.Row.Version, value: state.Row.Value}
			}
			t.fetched[rowName{store, missing[at].Key}] = now
		}
	}
	rows := make([]*Row, len(keys))
	for at, key := range keys {
		row, err := t.get(ctx, store, key)
		if err != nil {
			return nil, err
		}
		rows[at] = row
	}
	return rows, nil
}

// knows reports whether Get needs no request for the row.
func (t *Transaction) knows(name rowName) bool {
	own, written := t.writes[name]
	before, read := t.reads[name]
	_, fetched := t.fetched[name]
	return written && own.op != wire.Add || read && (before.version == 0 || before.value != nil) || fetched
}
