package tribunal

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"tribunal.internal/client/wire"
)

// Isolation is an isolation level; empty means Serializable, which is strict.
type Isolation = wire.IsolationLevel

// The isolation levels, weakest first.
const (
	ReadCommitted  = wire.IsolationLevelReadCommitted
	RepeatableRead = wire.IsolationLevelRepeatableRead
	Snapshot       = wire.IsolationLevelSnapshot
	Serializable   = wire.IsolationLevelSerializable
)

// Ack is when a commit returns.
type Ack = wire.Ack

// When a commit returns: once it is durable, or once every store has applied it.
const (
	AckDurable = wire.Durable
	AckApplied = wire.Applied
)

// Row is a row as it was read.
type Row struct {
	Key string
	// Value is any JSON, as it was written.
	Value json.RawMessage
	// Version is 0 for a row that the transaction itself wrote and had not read.
	Version Version
}

// Decode reads the value into a variable, as json.Unmarshal does: integers are exact in an int64 or a json.Number, and
// in an any up to 2^53. Decoding an absent row, which is nil, is a *Misuse.
func (r *Row) Decode(into any) error {
	if r == nil {
		return misuse("the row is absent: it is nil, and has no value to decode")
	}
	return json.Unmarshal(r.Value, into)
}

// PreparedCommit is a commit that can be repeated, or sent in a batch: the same id and body get the same verdict.
type PreparedCommit struct {
	// TxnID names the transaction, and is the idempotency key.
	TxnID string
	// Request is the request's body.
	Request wire.CommitRequest
	// Traceparent is the W3C trace context of the caller.
	Traceparent string
}

type rowName struct{ store, key string }

// isIn reports whether the row is in a range; an empty end is the end of the store.
func (n rowName) isIn(store, start, end string) bool {
	return n.store == store && n.key >= start && (end == "" || n.key < end)
}

type seen struct {
	// version is 0 if the row was absent.
	version Version
	// value is known only for rows that were read through this transaction.
	value json.RawMessage
	// inRange is set if a scan read the row: it has observed its range as well.
	inRange bool
}

// Transaction collects reads and writes in memory until the commit. To give up, drop it: it exists nowhere else. It is
// not safe for concurrent use, and must not be copied: either is a *Misuse, after which it cannot be committed.
//
// From the call of [Transaction.Commit] on, or once the work of a [Client.Run] has returned, further writes and
// observations, and reads of further rows, are a *Misuse: no verdict would cover them. What the transaction has read
// remains readable. A commit that ends with an error which means that nothing was decided, such as *Unavailable,
// reopens the transaction.
//
// Values are encoded at once, by encoding/json without escapes for HTML: a json.RawMessage is written as it is, without
// white space, a []byte as a string in base64, and nil as null.
//
// A write that cannot work (a value that JSON cannot represent, a second insert, one after the commit) is a *Misuse
// that [Transaction.Err], [Transaction.Prepare] and [Transaction.Commit] return; the first one is kept.
type Transaction struct {
	// Priority is a weight for conflict rules that use it, 0 to 255; nil is 100.
	Priority *int32
	// Ack is when the commit returns; empty is AckDurable.
	Ack Ack
	// Traceparent is the W3C trace context of the caller: sent with the commit, and kept in the log.
	Traceparent string
	// FirstAttempt is when this work was first attempted, for conflict rules that let the oldest work win; zero is the
	// time in the transaction's id. [Client.Run] sets it.
	FirstAttempt time.Time

	_ noCopy
	// self is the transaction itself; in a copy it is the original.
	self *Transaction
	// busy is set during a call; shared once another call overlapped it.
	busy, shared atomic.Bool
	closing      closing

	client    *Client
	id        string
	isolation Isolation
	epoch     *string
	snapshots map[string]string
	// lsns are positions of the stores' logs at Begin, and log the one that they belong to.
	lsns map[string]string
	log  string
	// session is the token of the commits that the snapshots include.
	session string
	// First reads, in order; later reads of a row return the same.
	reads     map[rowName]seen
	readOrder []rowName
	// Prefetched rows, which do not count as read until Get returns them.
	fetched map[rowName]seen
	// Prefetched ranges, which do not count as read until Scan returns them.
	fetchedRanges map[rangeName]RangeRows
	ranges        []wire.Range
	rangeNames    map[[3]string]bool
	writes        map[rowName]pendingWrite
	writeOrder    []rowName
	err           error
}

func newTransaction(client *Client, id string, isolation Isolation) *Transaction {
	if isolation == "" {
		isolation = Serializable
	}
	txn := &Transaction{
		client: client, id: id, isolation: isolation,
		reads: map[rowName]seen{}, fetched: map[rowName]seen{}, fetchedRanges: map[rangeName]RangeRows{},
		rangeNames: map[[3]string]bool{}, writes: map[rowName]pendingWrite{},
	}
	txn.self = txn
	return txn
}

// timeOf returns the time in a UUIDv7; zero if the id has another form.
func timeOf(id string) time.Time {
	parsed, err := uuid.Parse(id)
	if err != nil || parsed.Version() != 7 {
		return time.Time{}
	}
	seconds, nanoseconds := parsed.Time().UnixTime()
	return time.Unix(seconds, nanoseconds)
}

// ID is the transaction's id, by which its status can be requested.
func (t *Transaction) ID() string { return t.id }

// Snapshot returns the snapshot of a store; false if it was not named at Begin.
func (t *Transaction) Snapshot(store string) (Epoch, bool) {
	text, ok := t.snapshots[store]
	number, err := strconv.ParseUint(text, 10, 64)
	return Epoch(number), ok && err == nil
}

// LSN returns a position of a store's log: every commit up to the store's snapshot is there or before. An engine that keeps
// the rows itself applies the log up to here before it reads them. False if the store was not named at Begin, or the
// service is of an earlier release.
func (t *Transaction) LSN(store string) (LSN, bool) {
	text, ok := t.lsns[store]
	number, err := strconv.ParseUint(text, 10, 64)
	return LSN(number), ok && err == nil
}

// LogID returns the log that these positions belong to. If a copy has its rows from another log, the service's log was
// salvaged, restored or replaced: start the copy again from [Client.State]. Empty if it is not known.
func (t *Transaction) LogID() string { return t.log }

// Err returns the first misuse.
func (t *Transaction) Err() error {
	if t.shared.Load() {
		return errShared
	}
	return t.err
}

// ReadOnly reports whether the transaction writes nothing.
func (t *Transaction) ReadOnly() bool { return len(t.writes) == 0 }

// Blind reports whether the transaction has read nothing.
func (t *Transaction) Blind() bool { return len(t.reads) == 0 && len(t.ranges) == 0 }

// versionsRead returns the version of each row that the transaction has read; 0 for one that was absent.
func (t *Transaction) versionsRead() map[rowName]Version {
	read := make(map[rowName]Version, len(t.reads))
	for name, row := range t.reads {
		read[name] = row.version
	}
	return read
}

// Get reads a row of an embedded store, own writes included; nil if it is absent. Later reads of the row return the
// same, after the commit as well.
func (t *Transaction) Get(ctx context.Context, store, key string) (*Row, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	return t.get(ctx, store, key)
}

func (t *Transaction) get(ctx context.Context, store, key string) (*Row, error) {
	name := rowName{store, key}
	own, written := t.writes[name]
	before, read := t.reads[name]
	if written && own.op != wire.Add {
		return row(key, before.version, own.value), nil
	}
	if !read || before.version != 0 && before.value == nil {
		if err := t.closing.err(); err != nil {
			return nil, err
		}
		now, fetched := t.fetched[name]
		delete(t.fetched, name)
		if !fetched {
			found, err := t.client.Row(ctx, store, key)
			if err != nil {
				return nil, err
			}
			if found != nil {
				now = seen{version: found.Version, value: found.Value}
			}
			// The transaction may have been aborted meanwhile.
			if err := t.closing.err(); err != nil {
				return nil, err
			}
		}
		if read {
			// An observed version is kept: if the row has changed since, the commit must detect it.
			now.version, now.inRange = before.version, before.inRange
		} else {
			t.readOrder = append(t.readOrder, name)
		}
		t.reads[name] = now
		before = now
	}
	if !written {
		return row(key, before.version, before.value), nil
	}
	value, err := own.addedTo(before.value)
	return row(key, before.version, value), err
}

// Scan reads the first limit rows of start..end of an embedded store, own writes included, and observes the part of the
// range that was read: if it returns fewer rows, there are no more. An empty end is the end of the store; a limit of 0
// is 1,000.
func (t *Transaction) Scan(ctx context.Context, store, start, end string, limit int) ([]Row, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	if limit == 0 {
		limit = rangeLimitDefault
	}
	var found []Row
	rows := []Row{}
	for from, asked := start, limit; ; {
		if err := t.closing.err(); err != nil {
			return nil, err
		}
		page, err := t.page(ctx, rangeName{store, KeyRange{from, end, asked}})
		if err == nil {
			// The transaction may have been aborted meanwhile.
			err = t.closing.err()
		}
		if err != nil {
			return nil, err
		}
		upto := end
		if page.More && len(page.Rows) > 0 {
			upto = after(page.Rows[len(page.Rows)-1])
		}
		merged, err := t.merged(store, from, upto, page.Rows)
		if err != nil {
			return nil, err
		}
		found, rows = append(found, page.Rows...), append(rows, merged...)
		if len(rows) < limit && page.More && len(page.Rows) > 0 {
			// Rows that this transaction deletes do not count, so as many more are read.
			from, asked = upto, min(limit-len(rows)+t.deletesIn(store, upto, end), rangeLimitMax)
			continue
		}
		if len(rows) > limit {
			rows = rows[:limit]
			upto = after(rows[limit-1])
		}
		t.observeRange(store, start, upto)
		for _, row := range found {
			if upto == "" || row.Key < upto {
				t.saw(rowName{store, row.Key}, seen{version: row.Version, value: row.Value, inRange: true})
			}
		}
		return rows, nil
	}
}

// after returns the first key after a row's.
func after(row Row) string { return row.Key + "\x00" }

// merged applies the transaction's own writes to the rows of a range, in key order.
func (t *Transaction) merged(store, start, end string, found []Row) ([]Row, error) {
	rows := map[string]Row{}
	for _, one := range found {
		rows[one.Key] = *row(one.Key, one.Version, one.Value)
	}
	for name, write := range t.writes {
		if !name.isIn(store, start, end) {
			continue
		}
		before, value := rows[name.key], write.value
		if write.op == wire.Add {
			var err error
			if value, err = write.addedTo(before.Value); err != nil {
				return nil, err
			}
		}
		if merged := row(name.key, before.Version, value); merged != nil {
			rows[name.key] = *merged
		} else {
			delete(rows, name.key)
		}
	}
	return slices.SortedFunc(maps.Values(rows), func(a, b Row) int { return strings.Compare(a.Key, b.Key) }), nil
}

// deletesIn counts the rows of a range that the transaction deletes.
func (t *Transaction) deletesIn(store, start, end string) (count int) {
	for name, write := range t.writes {
		if write.op == wire.Delete && name.isIn(store, start, end) {
			count++
		}
	}
	return count
}

// page returns a range that was read ahead, or reads it.
func (t *Transaction) page(ctx context.Context, name rangeName) (RangeRows, error) {
	if ahead, ok := t.fetchedRanges[name]; ok {
		delete(t.fetchedRanges, name)
		return ahead, nil
	}
	fields, session := reader{}, t.session
	snapshot, known := t.snapshots[name.store]
	if !known {
		session, snapshot = "", "0"
	}
	page, err := t.client.page(ctx, name.store, name.keys, session, Epoch(fields.number(&snapshot)))
	if fields.err != nil {
		return RangeRows{}, fields.err
	}
	if err != nil {
		return RangeRows{}, err
	}
	return page.RangeRows, nil
}

// Observe records that the engine has read a row in its own storage: its version, or that it is absent (0). The first
// observation of a row counts.
func (t *Transaction) Observe(store, key string, version Version) {
	t.change(store, func() error {
		t.saw(rowName{store, key}, seen{version: version})
		return nil
	})
}

// ObserveRange records that the engine has read the keys start..end in its own storage; empty bounds are the store's.
func (t *Transaction) ObserveRange(store, start, end string) {
	t.change(store, func() error {
		t.observeRange(store, start, end)
		return nil
	})
}

func (t *Transaction) observeRange(store, start, end string) {
	if name := [3]string{store, start, end}; !t.rangeNames[name] {
		t.rangeNames[name] = true
		read := wire.Range{Store: store}
		if start != "" {
			read.Start, read.StartB64 = keyFields(start)
		}
		if end != "" {
			read.End, read.EndB64 = keyFields(end)
		}
		t.ranges = append(t.ranges, read)
	}
}

// Insert creates a row; the transaction aborts if it exists.
func (t *Transaction) Insert(store, key string, value any) { t.write(store, key, wire.Insert, value) }

// Update replaces a row's value; the transaction aborts if it is missing.
func (t *Transaction) Update(store, key string, value any) { t.write(store, key, wire.Update, value) }

// Put creates or replaces a row.
func (t *Transaction) Put(store, key string, value any) { t.write(store, key, wire.Put, value) }

// Add adds to an integer row; adds do not conflict with each other. The transaction aborts if the row is missing.
func (t *Transaction) Add(store, key string, delta int64) { t.write(store, key, wire.Add, delta) }

// AddOr adds to an integer row, or to or if the row is missing: then it is created. Such adds do not conflict with each
// other either; the first creates the row.
func (t *Transaction) AddOr(store, key string, delta int64, or int) {
	value := json.RawMessage(strconv.FormatInt(delta, 10))
	t.change(store, func() error { return t.merge(store, key, pendingWrite{wire.Add, value, &or}) })
}

// Delete removes a row; the transaction aborts if it is missing.
func (t *Transaction) Delete(store, key string) {
	t.change(store, func() error { return t.merge(store, key, pendingWrite{op: wire.Delete}) })
}

// Commit requests the verdict. If the reply is lost, the verdict is queried by the transaction's id. It may be
// repeated: the verdict is the same.
func (t *Transaction) Commit(ctx context.Context) (Verdict, error) {
	prepared, err := t.lastPrepared()
	if err != nil {
		return nil, err
	}
	verdict, err := t.client.Commit(ctx, prepared)
	t.closing.committed(ctx, verdict, err)
	return verdict, err
}

// lastPrepared creates the request of a commit, and closes the transaction in the same turn.
func (t *Transaction) lastPrepared() (*PreparedCommit, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	prepared, err := t.prepare()
	if err == nil {
		t.closing.commit()
	}
	return prepared, err
}

// Validate reports whether the transaction would commit now if it were alone; its verdict if it has one. It changes
// nothing.
func (t *Transaction) Validate(ctx context.Context) (*wire.TxnOutcome, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	prepared, err := t.prepare()
	if err != nil {
		return nil, err
	}
	return t.client.Validate(ctx, prepared)
}

// Abort aborts the transaction at the service, and returns its verdict. It is not needed before dropping the
// transaction.
func (t *Transaction) Abort(ctx context.Context) (Verdict, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	verdict, err := t.client.Abort(ctx, t.id)
	if err == nil {
		t.closing.decided(verdict)
	}
	return verdict, err
}

// Prepare creates the commit request, for example for [Client.Batch].
func (t *Transaction) Prepare() (*PreparedCommit, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	return t.prepare()
}

func (t *Transaction) prepare() (*PreparedCommit, error) {
	if err := t.Err(); err != nil {
		return nil, err
	}
	reads := make([]wire.Read, 0, len(t.reads))
	for _, name := range t.readOrder {
		if !t.mustBeSent(name) {
			continue
		}
		read := wire.Read{Store: name.store}
		read.Key, read.KeyB64 = keyFields(name.key)
		if version := t.reads[name].version; version != 0 {
			text := strconv.FormatUint(uint64(version), 10)
			read.Version = &text
		}
		reads = append(reads, read)
	}
	writes := make([]wire.Write, 0, len(t.writes))
	for _, name := range t.writeOrder {
		if pending, ok := t.writes[name]; ok {
			write := wire.Write{Op: pending.op, Store: name.store, Value: pending.value, Or: pending.or}
			write.Key, write.KeyB64 = keyFields(name.key)
			writes = append(writes, write)
		}
	}
	isolation, ranges := t.isolation, append([]wire.Range{}, t.ranges...)
	var priority *int32
	if t.Priority != nil {
		// A copy: the caller's variable may change before the commit is repeated.
		chosen := *t.Priority
		priority = &chosen
	}
	request := wire.CommitRequest{
		Isolation: &isolation, Priority: priority, Epoch: t.epoch, Reads: &reads, Ranges: &ranges, Writes: &writes,
	}
	if len(t.snapshots) > 0 {
		snapshots := t.snapshots
		request.Snapshots = &snapshots
	}
	if t.Ack != "" {
		ack := t.Ack
		request.Ack = &ack
	}
	if !t.FirstAttempt.IsZero() {
		ms := strconv.FormatInt(t.FirstAttempt.UnixMilli(), 10)
		request.FirstAttemptMs = &ms
	}
	if t.shared.Load() {
		return nil, errShared
	}
	return &PreparedCommit{TxnID: t.id, Request: request, Traceparent: t.Traceparent}, nil
}

// mustBeSent reports whether the commit has to name a row that was read. At Serializable, a range is compared with all
// writes since the snapshot, those of the commit's own epoch included, so the rows of a scan would be checked twice.
// The other levels need them: RepeatableRead compares no ranges, and at Snapshot, an Add to a row that was read is an
// update of it. A written row is always named: in a store of declared existence, the read is evidence that the row
// exists.
func (t *Transaction) mustBeSent(name rowName) bool {
	_, written := t.writes[name]
	return written || !t.reads[name].inRange || t.isolation != Serializable
}

func (t *Transaction) saw(name rowName, what seen) {
	if _, known := t.reads[name]; !known {
		t.reads[name] = what
		t.readOrder = append(t.readOrder, name)
	}
}

func (t *Transaction) write(store, key string, op wire.WriteOp, value any) {
	// Before the turn begins: a value that encodes itself may use the transaction.
	raw, err := rowValue(value)
	t.change(store, func() error {
		if err != nil {
			return err
		}
		return t.merge(store, key, pendingWrite{op: op, value: raw})
	})
}

func (t *Transaction) merge(store, key string, next pendingWrite) error {
	name := rowName{store, key}
	row := unread
	if read, ok := t.reads[name]; ok {
		row = present
		if read.version == 0 {
			row = absent
		}
	}
	var before *pendingWrite
	if pending, ok := t.writes[name]; ok {
		before = &pending
	}
	merged, err := merge(before, next, row)
	switch {
	case err != nil:
		return err
	case merged == nil:
		delete(t.writes, name)
		t.writeOrder = without(t.writeOrder, name)
	default:
		if before == nil {
			t.writeOrder = append(t.writeOrder, name)
		}
		t.writes[name] = *merged
	}
	return nil
}

func (t *Transaction) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

func without(names []rowName, name rowName) []rowName {
	kept := names[:0]
	for _, one := range names {
		if one != name {
			kept = append(kept, one)
		}
	}
	return kept
}

// row returns a row with its own copy of the value: the caller may change it without affecting later reads of the
// transaction.
func row(key string, version Version, value json.RawMessage) *Row {
	if value == nil {
		return nil
	}
	return &Row{Key: key, Value: slices.Clone(value), Version: version}
}
