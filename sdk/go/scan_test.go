package tribunal_test

import (
	"fmt"
	"testing"

	tribunal "tribunal.internal/client"
	"tribunal.internal/client/wire"
)

// scanned begins a transaction that has scanned the rows with the prefix.
func scanned(t *testing.T, client *tribunal.Client, level tribunal.Isolation, prefix string) *tribunal.Transaction {
	t.Helper()
	begin := tribunal.BeginOptions{Stores: []string{"kv"}, Isolation: level}
	txn := must[*tribunal.Transaction](t)(client.Begin(t.Context(), begin))
	equal(t, "rows", len(must[[]tribunal.Row](t)(txn.Scan(t.Context(), "kv", prefix, prefix+"~", 10))), 2)
	return txn
}

func TestAScannedRowIsSentOnlyWhereItsRangeDoesNotCoverIt(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	for _, one := range []struct {
		level         tribunal.Isolation
		reads, ranges int
		end           string
	}{
		{tribunal.ReadCommitted, 2, 1, "committed"},
		{tribunal.RepeatableRead, 2, 1, "aborted read_conflict"},
		{tribunal.Snapshot, 2, 1, "aborted range_conflict"},
		{tribunal.Serializable, 0, 1, "aborted range_conflict"},
	} {
		put(t, client, prefix+"a", 1)
		put(t, client, prefix+"b", 1)
		txn := scanned(t, client, one.level, prefix)
		request := prepared(t, txn)[0].Request
		equal(t, "reads", len(*request.Reads), one.reads)
		equal(t, "ranges", len(*request.Ranges), one.ranges)
		// Nothing else is forgotten: the rows that it read answer later reads, and a changed row is a conflict.
		put(t, client, prefix+"a", 2)
		row := must[*tribunal.Row](t)(txn.Get(ctx, "kv", prefix+"a"))
		equal(t, "value", string(row.Value), "1")
		txn.Put("kv", prefix+"elsewhere", 1)
		equal(t, string(one.level), shown(txn.Commit(ctx)), one.end)
		prefix = freshPrefix()
	}
	// A row that was also read by key is sent.
	put(t, client, prefix+"a", 1)
	put(t, client, prefix+"b", 1)
	txn := must[*tribunal.Transaction](t)(client.Begin(ctx, tribunal.BeginOptions{Stores: []string{"kv"}}))
	_ = must[*tribunal.Row](t)(txn.Get(ctx, "kv", prefix+"a"))
	_ = must[[]tribunal.Row](t)(txn.Scan(ctx, "kv", prefix, "", 10))
	equal(t, "reads", len(*prepared(t, txn)[0].Request.Reads), 1)
	// So is a written row: the read is evidence for a store of declared existence that the row exists.
	txn = scanned(t, client, tribunal.Serializable, prefix)
	txn.Put("kv", prefix+"a", 2)
	equal(t, "reads", len(*prepared(t, txn)[0].Request.Reads), 1)
}

func TestTransactionsThatScannedTheSameRowsConflictWithinAnEpoch(t *testing.T) {
	client := connected(t)
	// Snapshot allows write skew.
	for _, one := range []struct {
		level tribunal.Isolation
		skew  bool
	}{
		{tribunal.RepeatableRead, false},
		{tribunal.RepeatableRead, true},
		{tribunal.Snapshot, false},
		{tribunal.Serializable, false},
		{tribunal.Serializable, true},
	} {
		prefix := freshPrefix()
		put(t, client, prefix+"a", 1)
		put(t, client, prefix+"b", 1)
		first, second := scanned(t, client, one.level, prefix), scanned(t, client, one.level, prefix)
		if one.skew {
			first.Put("kv", prefix+"a", 0)
			second.Put("kv", prefix+"b", 0)
		} else {
			first.Add("kv", prefix+"a", -1)
			second.Add("kv", prefix+"a", -1)
		}
		var ends []string
		for _, result := range must[[]tribunal.Result](t)(client.Batch(t.Context(), prepared(t, first, second))) {
			ends = append(ends, shown(result.Verdict, result.Err))
		}
		equal(t, fmt.Sprint(one, ends), count(ends, "committed"), 1)
	}
}

func keysOf(rows []tribunal.Row) (keys string) {
	for _, row := range rows {
		keys += row.Key[len(row.Key)-1:]
	}
	return keys
}

func TestAScanReturnsAsManyRowsAsThereAreWhateverTheTransactionHasDeleted(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	for _, key := range "abcdefgh" {
		put(t, client, prefix+string(key), 1)
	}
	ranges := map[string][]tribunal.KeyRange{"kv": {{Start: prefix, End: prefix + "~", Limit: 3}}}
	txn := must[*tribunal.Transaction](t)(client.Begin(ctx, tribunal.BeginOptions{Stores: []string{"kv"}, Ranges: ranges}))
	scan := func(limit int) string {
		t.Helper()
		return keysOf(must[[]tribunal.Row](t)(txn.Scan(ctx, "kv", prefix, prefix+"~", limit)))
	}
	for _, key := range "abdf" {
		txn.Delete("kv", prefix+string(key))
	}
	txn.Insert("kv", prefix+"g0", 1)
	equal(t, "3 rows", scan(3), "ceg")
	// Only the returned part is observed.
	put(t, client, prefix+"g1", 1)
	put(t, client, prefix+"h", 2)
	txn.Put("kv", freshPrefix(), 1)
	outcome := must[*wire.TxnOutcome](t)(txn.Validate(ctx))
	equal(t, "outcome", string(outcome.Status), "would_commit")
	equal(t, "1 row", scan(1), "c")
	equal(t, "all rows", scan(0), "ceg01h")
	equal(t, "outcome", shown(txn.Commit(ctx)), "aborted range_conflict")
}

// A queue: each transaction takes the first remaining row.
func TestRowsAreTakenOneByOneFromTheStartOfARange(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	for _, key := range "abcde" {
		put(t, client, prefix+string(key), 1)
	}
	txn, taken := must[*tribunal.Transaction](t)(client.Begin(ctx, tribunal.BeginOptions{Stores: []string{"kv"}})), ""
	for {
		first := must[[]tribunal.Row](t)(txn.Scan(ctx, "kv", prefix, prefix+"~", 1))
		if len(first) == 0 {
			break
		}
		taken += keysOf(first)
		txn.Delete("kv", first[0].Key)
	}
	equal(t, "taken", taken, "abcde")
	equal(t, "end", shown(txn.Commit(ctx)), "committed")
}
