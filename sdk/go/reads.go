package tribunal

import (
	"context"
	"strconv"

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
	// Rows has one result per row, in the order of the request.
	Rows []RowState
}

// ReadRows reads rows of an embedded store outside any transaction: at most 10,000 rows, with at most 8 MiB of values in
// total. They include every commit that was acknowledged before the call.
func (c *Client) ReadRows(ctx context.Context, store string, rows []RowRead) (*RowReads, error) {
	asked := make([]wire.RowRead, len(rows))
	for at, row := range rows {
		asked[at].Key, asked[at].KeyB64 = keyFields(row.Key)
		if row.Known != 0 {
			version := strconv.FormatUint(uint64(row.Known), 10)
			asked[at].Version = &version
		}
	}
	answer, err := retrying(ctx, c, func() (*wire.ReadResponse, error) {
		return settled(ask[wire.ReadResponse](ctx, c, 0, func(ctx context.Context) (*response, error) {
			return c.wire.ReadRows(ctx, store, wire.ReadRequest{Read: &asked})
		}))
	})
	if err != nil {
		return nil, err
	}
	found := given(answer.Rows)
	if len(found) != len(rows) {
		return nil, misbehaved("%d rows returned where %d were requested", len(found), len(rows))
	}
	fields := reader{}
	reads := &RowReads{Applied: Epoch(fields.number(&answer.Applied)), Rows: make([]RowState, len(rows))}
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

// rowsToRead returns the rows that Begin reads, as names and in the form of a request.
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
		t.fetched[names[at]] = seen{version, valueOf(found[at].Value, found[at].ValueB64)}
	}
	return fields.err
}

// GetMany reads rows of an embedded store as [Transaction.Get] does, with one request for all rows that the transaction
// has not read yet: at most 10,000 rows, with at most 8 MiB of values in total. The results are in the order of the keys;
// nil is an absent row.
func (t *Transaction) GetMany(ctx context.Context, store string, keys []string) ([]*Row, error) {
	asked, missing := map[string]bool{}, []RowRead{}
	for _, key := range keys {
		if !asked[key] && !t.knows(rowName{store, key}) {
			asked[key], missing = true, append(missing, RowRead{Key: key})
		}
	}
	if len(missing) > 0 {
		reads, err := t.client.ReadRows(ctx, store, missing)
		if err != nil {
			return nil, err
		}
		for at, state := range reads.Rows {
			now := seen{}
			if state.Row != nil {
				now = seen{state.Row.Version, state.Row.Value}
			}
			t.fetched[rowName{store, missing[at].Key}] = now
		}
	}
	rows := make([]*Row, len(keys))
	for at, key := range keys {
		row, err := t.Get(ctx, store, key)
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
