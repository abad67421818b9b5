package tribunal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"tribunal.internal/client/wire"
)

// BeginOptions configures a transaction. The zero value is a serializable transaction on all stores.
type BeginOptions struct {
	// Stores that the transaction will use; empty means all stores of the namespace.
	Stores []string
	// Isolation level; Serializable if empty.
	Isolation Isolation
	// Session is the token of a commit that the snapshots must include, instead of this client's own latest one.
	Session string
	// Consistency is what the snapshots include: what this client has committed if empty; with [Fresh] everything that any
	// node of the cluster acknowledged to any client before the call.
	Consistency Consistency
	// Wait is how long to wait until the snapshots include that; 0 means 5 s.
	Wait time.Duration
	// Traceparent is the W3C trace context of the caller: sent with the commit, and kept in the log.
	Traceparent string
	// Read lists rows of embedded stores, by store, to read in the same request: [Transaction.Get] returns them without
	// another request. Rows that are never fetched with Get do not count as read.
	Read map[string][]string
	// Ranges lists ranges of embedded stores, by store, to read in the same request: [Transaction.Scan] with the same
	// bounds and limit returns the rows without another request. Ranges that are never scanned do not count as read.
	Ranges map[string][]KeyRange
}

// check returns an error if the options cannot be used.
func (o BeginOptions) check() error {
	for _, ranges := range o.Ranges {
		for _, keys := range ranges {
			if err := checkLimit(keys.Limit); err != nil {
				return err
			}
		}
	}
	names := []iter.Seq[string]{slices.Values(o.Stores), maps.Keys(o.Read), maps.Keys(o.Ranges)}
	for _, stores := range names {
		if err := checkStores(stores); err != nil {
			return err
		}
	}
	return errors.Join(checkTraceparent(o.Traceparent), ReadOptions{Session: o.Session, Wait: o.Wait}.check())
}

// beginItem is a Begin of one caller.
type beginItem struct {
	// stores that the Begin names or reads; empty means all stores of the namespace.
	stores []string
	body   wire.BeginRequest
	// wait is how long to wait for the commits that the snapshots must include; 0 is the service's default.
	wait time.Duration
	// until is the deadline of the Begin.
	until time.Time
}

// askedBy converts options to a request, and lists the rows and ranges that it reads, in its order.
func askedBy(options BeginOptions, isolation *Isolation) (asked beginItem, rows []rowName, ranges []rangeName) {
	asked.wait = options.Wait
	asked.body.Isolation = isolation
	terms := ReadOptions{options.Session, options.Consistency, options.Wait}.request()
	asked.body.Session, asked.body.Consistency, asked.body.WaitMs = terms.Session, terms.Consistency, terms.WaitMs
	rows, read := rowsToRead(options.Read)
	if len(read) > 0 {
		asked.body.Read = &read
	}
	ranges, scanned := rangesToRead(options.Ranges)
	if len(scanned) > 0 {
		asked.body.Ranges = &scanned
	}
	if len(options.Stores) > 0 {
		asked.stores = slices.Clone(options.Stores)
		for store := range options.Read {
			asked.stores = append(asked.stores, store)
		}
		for store := range options.Ranges {
			asked.stores = append(asked.stores, store)
		}
		slices.Sort(asked.stores)
		asked.stores = slices.Compact(asked.stores)
		asked.body.Stores = &asked.stores
	}
	return asked, rows, ranges
}

// group returns the key of the Begins that can share snapshots: same stores, same freshness requirement, same wait.
// Without a list of stores, the stores that are read count, so that a missing one fails no other Begin.
func (a beginItem) group() string {
	read := []string{}
	if len(a.stores) == 0 {
		for _, row := range given(a.body.Read) {
			read = append(read, given(row.Store))
		}
		slices.Sort(read)
		read = slices.Compact(read)
	}
	return fmt.Sprintf("%q %q %s", a.stores, read, groupOf(a.body.Session, a.body.Consistency, a.body.WaitMs))
}

// isBatchable reports whether the Begin may share a request. Ranges and many rows can fill a response by themselves.
func (a beginItem) isBatchable() bool {
	return a.body.Ranges == nil && bytesOf(given(a.body.Read)) <= bytesAlone
}

// Begin begins a transaction at the service, which chooses the snapshots. They include what this client has committed
// to these stores. While other Begin requests are in flight, the Begin may be queued and share a request; see
// [Options.NoCoalesce].
func (c *Client) Begin(ctx context.Context, options BeginOptions) (*Transaction, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	txn := newTransaction(c, "", options.Isolation)
	txn.Traceparent = options.Traceparent
	asked, rows, ranges := askedBy(options, &txn.isolation)
	wait := freshnessWait(asked.body.Session, asked.body.Consistency, options.Wait)
	if options.Wait == 0 && !c.options.IgnoreOwnWrites {
		wait = freshnessWaitDefault
	}
	asked.until = time.Now().Add(min(wait, requestWaitMax) + c.options.Timeout)
	answer := shared[wire.BeginResponse]{refused: true}
	if !c.options.NoCoalesce && asked.isBatchable() {
		var err error
		terms := terms{group: asked.group(), bytes: bytesOf(given(asked.body.Read)), until: asked.until}
		if answer, _, err = c.begins.submit(ctx, terms, asked); err == errLate {
			return nil, &Unavailable{Err: err}
		} else if err != nil {
			return nil, err
		}
	}
	if answer.refused {
		answer = c.sendBegin(ctx, asked)
	}
	begun, err := settled(answer.reply)
	if err != nil {
		return nil, err
	}
	txn.id, txn.epoch, txn.snapshots, txn.session = begun.TxnID, &begun.Epoch, begun.Snapshots, begun.Session
	txn.lsns, txn.log = given(begun.Lsn), given(begun.Log)
	if err := txn.keep(rows, given(begun.Rows)); err != nil {
		return nil, err
	}
	return txn, txn.keepRanges(ranges, given(begun.Ranges))
}

func (c *Client) sendBegin(ctx context.Context, asked beginItem) shared[wire.BeginResponse] {
	return shared[wire.BeginResponse]{reply: c.postBegin(ctx, asked, asked.body)}
}

// sendBegins sends Begins of one group as one request.
func (c *Client) sendBegins(items []beginItem) []shared[wire.BeginResponse] {
	rows := make([][]wire.RowRead, len(items))
	for at, item := range items {
		rows[at] = given(item.body.Read)
	}
	joined, body := unite(rows), items[0].body
	if body.Read = nil; len(joined.rows) > 0 {
		body.Read = &joined.rows
	}
	asked := items[0]
	for _, item := range items {
		asked.until = latest(asked.until, item.until)
	}
	// Not in a caller's context: a cancelled caller does not affect the others.
	answer := c.postBegin(context.Background(), asked, body)
	return parts(answer, len(items), func(begun *wire.BeginResponse) ([]wire.BeginResponse, error) {
		each, err := joined.apart(given(begun.Rows))
		if err != nil {
			return nil, err
		}
		responses := make([]wire.BeginResponse, len(items))
		for at := range responses {
			responses[at] = *begun
			responses[at].Rows = &each[at]
			if at > 0 {
				if responses[at].TxnID, err = idBeside(begun.TxnID); err != nil {
					return nil, err
				}
			}
		}
		return responses, nil
	})
}

// postBegin sends a Begin. The session is read now: it covers every commit that a caller made before its call.
func (c *Client) postBegin(ctx context.Context, asked beginItem, body wire.BeginRequest) reply[wire.BeginResponse] {
	ownSession := body.Session == nil && !c.options.IgnoreOwnWrites
	for {
		token := ""
		if ownSession {
			token = c.session.token(asked.stores)
		}
		if body.Session = asked.body.Session; token != "" {
			body.Session = &token
		}
		wait := freshnessWait(body.Session, body.Consistency, asked.wait)
		answer := askUntil[wire.BeginResponse](ctx, c, wait, asked.until, func(ctx context.Context, at *wire.Client) (*response, error) {
			return at.Begin(ctx, body)
		})
		if token == "" || !answer.isSessionUnknown() {
			return answer
		}
		// The log that contained this client's commits was replaced.
		c.session.forget(token)
	}
}

// idBeside creates an id with the time of an id from the service, whose clock may differ from the local one.
func idBeside(id string) (string, error) {
	given, err := uuid.Parse(id)
	if err != nil || given.Version() != 7 {
		return "", misbehaved("%q is not a UUIDv7", id)
	}
	own := uuid.New()
	// The first 48 bits are the time, the next 4 the version.
	copy(own[:6], given[:6])
	own[6] = own[6]&0x0f | 0x70
	return own.String(), nil
}
