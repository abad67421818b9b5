package tribunal_test

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"testing"

	"github.com/google/uuid"

	tribunal "tribunal.internal/client"
	"tribunal.internal/client/wire"
)

// writeAll commits to some rows of a store.
func writeAll(t *testing.T, client *tribunal.Client, store string) {
	t.Helper()
	for number := range 150 {
		txn := client.BeginLocal(tribunal.Serializable)
		txn.Put(store, fmt.Sprintf("row/%d/%d", number%20, number), number)
		txn.Add(store, fmt.Sprintf("n/%d", number%20), int64(number))
		if number%3 == 0 {
			txn.Put(store, fmt.Sprintf("deleted/%d", number), 1)
		} else if number%3 == 1 {
			txn.Delete(store, fmt.Sprintf("deleted/%d", number-1))
		}
		verdict, err := txn.Commit(t.Context())
		committed(t, verdict, err)
	}
}

func TestACopyFromTheStateAndTheLogIsThatOfTheStore(t *testing.T) {
	client, store := connected(t), "state-"+uuid.NewString()[:12]
	adaptor := "kv"
	must[*wire.StoreInfo](t)(client.DeclareStore(t.Context(), store, wire.StoreDeclaration{Adaptor: &adaptor}))
	txn := client.BeginLocal(tribunal.Serializable)
	for number := range 2000 {
		txn.Put(store, fmt.Sprintf("row/%d/%d", number%20, number), "first")
	}
	for number := range 20 {
		txn.Put(store, fmt.Sprintf("n/%d", number), 0)
	}
	verdict, err := txn.Commit(t.Context())
	committed(t, verdict, err)
	written := make(chan struct{})
	go func() {
		defer close(written)
		writeAll(t, client, store)
	}()
	copied := map[string]string{}
	state := must[*tribunal.State](t)(client.State(t.Context(), store))
	for row, err := range state.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		copied[row.Key] = string(row.Value)
	}
	<-written
	log := client.Log(store, tribunal.LogOptions{After: state.LSN, Log: state.Log, Wait: -1})
	for record, err := range log.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, write := range record.Writes {
			switch write.Op {
			case wire.Delete:
				delete(copied, write.Key)
			case wire.Add:
				before, _ := strconv.Atoi(copied[write.Key])
				delta, _ := strconv.Atoi(string(write.Value))
				copied[write.Key] = strconv.Itoa(before + delta)
			default:
				copied[write.Key] = string(write.Value)
			}
		}
	}
	page := must[*tribunal.RowPage](t)(client.Rows(t.Context(), store, tribunal.KeyRange{Limit: 10_000}))
	stored := map[string]string{}
	for _, row := range page.Rows {
		stored[row.Key] = string(row.Value)
	}
	equal(t, "more rows", page.More, false)
	if !maps.Equal(copied, stored) {
		t.Errorf("%d rows copied, %d stored", len(copied), len(stored))
	}
	var mistake *tribunal.ClientMistake
	if _, err := client.State(t.Context(), "none"); !errors.As(err, &mistake) || mistake.Code() != "unknown_store" {
		t.Error(err)
	}
}
