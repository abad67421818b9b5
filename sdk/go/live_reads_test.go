package tribunal_test

import (
	"context"
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
	// Each counts as read, the absent one as well.
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
