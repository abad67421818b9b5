package tribunal_test

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"testing"

	tribunal "tribunal.internal/client"
)

func TestRowsReadAtBeginAreCheckedAtCommit(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	binary := "\xff" + prefix
	put(t, client, prefix+"a", 1)
	won := put(t, client, binary, nil)
	begin := tribunal.BeginOptions{Stores: []string{"kv"}, Read: map[string][]string{"kv": {prefix + "a", binary, prefix + "none"}}}
	txn := must[*tribunal.Transaction](t)(client.Begin(ctx, begin))
	row := must[*tribunal.Row](t)(txn.Get(ctx, "kv", binary))
	equal(t, "value", string(row.Value), "null")
	equal(t, "version", row.Version, won.Version)
	if none := must[*tribunal.Row](t)(txn.Get(ctx, "kv", prefix+"none")); none != nil {
		t.Error(none)
	}
	// This row was prefetched and never returned by Get, so its change is no conflict.
	put(t, client, prefix+"a", 2)
	txn.Put("kv", prefix+"b", 1)
	verdict, err := txn.Commit(ctx)
	committed(t, verdict, err)

	txn = must[*tribunal.Transaction](t)(client.Begin(ctx, begin))
	equal(t, "value", string(must[*tribunal.Row](t)(txn.Get(ctx, "kv", prefix+"a")).Value), "2")
	put(t, client, prefix+"a", 3)
	txn.Put("kv", prefix+"b", 2)
	verdict, err = txn.Commit(ctx)
	equal(t, "reason", aborted(t, verdict, err).Reason, "read_conflict")

	// Each attempt of Run reads fresh rows.
	var values []string
	_, err = client.Run(ctx, begin, func(ctx context.Context, txn *tribunal.Transaction) error {
		row, err := txn.Get(ctx, "kv", prefix+"a")
		if err != nil {
			return err
		}
		if values = append(values, string(row.Value)); len(values) == 1 {
			put(t, client, prefix+"a", 4)
		}
		txn.Put("kv", prefix+"b", 3)
		return nil
	})
	if err != nil || len(values) != 2 || values[0] != "3" || values[1] != "4" {
		t.Error(values, err)
	}
}

func TestGetManyReadsRowsAtOneEpochAndIncludesOwnWrites(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	won := put(t, client, prefix+"a", 1)
	txn := must[*tribunal.Transaction](t)(client.Begin(ctx, tribunal.BeginOptions{Stores: []string{"kv"}}))
	txn.Insert("kv", prefix+"own", "mine")
	rows := must[[]*tribunal.Row](t)(txn.GetMany(ctx, "kv", []string{prefix + "own", prefix + "none", prefix + "a"}))
	if len(rows) != 3 || string(rows[0].Value) != `"mine"` || rows[1] != nil || rows[2].Version != won.Version {
		t.Fatal(rows)
	}
	// Each row counts as read, even the absent one.
	put(t, client, prefix+"none", 1)
	verdict, err := txn.Commit(ctx)
	equal(t, "reason", aborted(t, verdict, err).Reason, "read_conflict")
}

func TestReadRowsRevalidatesACachedRow(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	old := put(t, client, prefix+"a", 1)
	cached := []tribunal.RowRead{{Key: prefix + "a", Known: old.Version}, {Key: prefix + "none"}}
	found := must[*tribunal.RowReads](t)(client.ReadRows(ctx, "kv", cached))
	if found.Applied < old.Epoch || !found.Rows[0].Unchanged || found.Rows[0].Row != nil {
		t.Errorf("%+v", found)
	}
	if found.Rows[1].Row != nil || found.Rows[1].Unchanged {
		t.Errorf("%+v", found)
	}
	won := put(t, client, prefix+"a", 2)
	found = must[*tribunal.RowReads](t)(client.ReadRows(ctx, "kv", cached))
	if row := found.Rows[0].Row; row == nil || row.Version != won.Version || string(row.Value) != "2" || row.Key != prefix+"a" {
		t.Errorf("%+v", found)
	}
}

func TestSessionsWhoseRequestsGatherReadTheirOwnWrites(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	ids := sync.Map{}
	// session returns a description of an unexpected result.
	session := func(number int) error {
		own, shared := fmt.Sprintf("%sown/%d", prefix, number), fmt.Sprintf("%sshared/%d", prefix, number%4)
		for round := range 10 {
			txn, err := client.Begin(ctx, tribunal.BeginOptions{Stores: []string{"kv"}, Read: map[string][]string{"kv": {own}}})
			if err != nil {
				return err
			}
			if _, twice := ids.LoadOrStore(txn.ID(), true); twice {
				return fmt.Errorf("two transactions have the id %s", txn.ID())
			}
			before, err := txn.Get(ctx, "kv", own)
			if err != nil || (before == nil) != (round == 0) || before != nil && string(before.Value) != strconv.Itoa(round-1) {
				return fmt.Errorf("%+v at the Begin of round %d: %w", before, round, err)
			}
			txn.Put("kv", own, round)
			txn.Put("kv", shared, number)
			verdict, err := txn.Commit(ctx)
			won, ok := verdict.(*tribunal.Committed)
			if err != nil || !ok {
				return fmt.Errorf("%+v: %w", verdict, err)
			}
			after, err := client.Row(ctx, "kv", own)
			if err != nil || after == nil || after.Version != won.Version || string(after.Value) != strconv.Itoa(round) {
				return fmt.Errorf("%+v after %+v: %w", after, won, err)
			}
			after, err = client.Row(ctx, "kv", shared)
			if err != nil || after == nil || after.Version < won.Version {
				return fmt.Errorf("%+v after %+v: %w", after, won, err)
			}
		}
		return nil
	}
	var running sync.WaitGroup
	for number := range 64 {
		running.Add(1)
		go func() {
			defer running.Done()
			if err := session(number); err != nil {
				t.Error(err)
			}
		}()
	}
	running.Wait()
}

func TestRangesAreReadByBeginAndOutsideTransactions(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	for at, key := range []string{"a/1", "a/2", "a/3", "b/1"} {
		put(t, client, prefix+key, at)
	}
	all := tribunal.KeyRange{Start: prefix + "a/", End: prefix + "a0", Limit: 10}
	two := tribunal.KeyRange{Start: prefix + "a/", End: prefix + "a0", Limit: 2}
	found := must[*tribunal.RangeReads](t)(client.ReadRanges(ctx, "kv", []tribunal.KeyRange{two, {Start: prefix + "b/", End: prefix + "c", Limit: 5}}))
	equal(t, "rows", len(found.Ranges[0].Rows), 2)
	equal(t, "more", found.Ranges[0].More, true)
	equal(t, "key", found.Ranges[1].Rows[0].Key, prefix+"b/1")
	equal(t, "more", found.Ranges[1].More, false)

	// Reading one range by the same name returns the same rows.
	page := must[*tribunal.RowPage](t)(client.Rows(ctx, "kv", two))
	equal(t, "rows", reflect.DeepEqual(page.RangeRows, found.Ranges[0]), true)

	begin := tribunal.BeginOptions{Stores: []string{"kv"}, Ranges: map[string][]tribunal.KeyRange{"kv": {all, two}}}
	begun := func() *tribunal.Transaction { return must[*tribunal.Transaction](t)(client.Begin(ctx, begin)) }
	unused, scanned, part := begun(), begun(), begun()
	scanned.Put("kv", prefix+"a/4", 4)
	equal(t, "rows", len(must[[]tribunal.Row](t)(scanned.Scan(ctx, "kv", all.Start, all.End, 10))), 4)
	equal(t, "rows", len(must[[]tribunal.Row](t)(part.Scan(ctx, "kv", two.Start, two.End, 2))), 2)
	put(t, client, prefix+"a/35", 1)
	// Only the scanned part of a range belongs to the read set of a transaction.
	for _, txn := range []*tribunal.Transaction{unused, part} {
		txn.Put("kv", prefix+"c", 1)
		verdict, err := txn.Commit(ctx)
		committed(t, verdict, err)
	}
	verdict, err := scanned.Commit(ctx)
	equal(t, "reason", aborted(t, verdict, err).Reason, "range_conflict")
}
