package tribunal_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strconv"
	"time"

	tribunal "tribunal.internal/client"
)

type order struct {
	Customer string `json:"customer"`
	Total    int64  `json:"total"`
}

// The errors of a Run, from those of the work itself to those after which the caller may retry.
func ExampleClient_Run() {
	client, err := tribunal.New("http://127.0.0.1:7420", tribunal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	errTooMany := errors.New("the customer has too many orders")
	begin := tribunal.BeginOptions{Stores: []string{"kv"}}
	_, err = client.Run(ctx, begin, func(ctx context.Context, txn *tribunal.Transaction) error {
		orders, err := txn.Scan(ctx, "kv", "order/ann/", "order/ann0", 5)
		if err != nil {
			return err
		}
		if len(orders) == 5 {
			return errTooMany
		}
		txn.Insert("kv", "order/ann/"+txn.ID(), order{"ann", 10})
		txn.AddOr("kv", "orders", 1, 0)
		return nil
	})
	var (
		aborted     *tribunal.TransactionAborted
		unknown     *tribunal.OutcomeUnknown
		unavailable *tribunal.Unavailable
	)
	switch {
	case err == nil:
		fmt.Println("ordered")
	case errors.Is(err, errTooMany):
		fmt.Println("refused:", err)
	case errors.As(err, &aborted):
		fmt.Println("no attempt has committed:", aborted.Aborted.Reason, aborted.Attempts)
	case errors.As(err, &unknown):
		fmt.Println("it may have committed: request the status of", unknown.TxnID)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &unavailable):
		fmt.Println("it has not committed:", err)
	default:
		log.Fatal(err)
	}
}

// An engine that stores the rows itself, in a store declared without an adaptor: it follows the log, and reads its own
// rows once they include everything up to the snapshot. This one writes no adds, whose values in the log are deltas.
func ExampleTransaction_Observe() {
	client, err := tribunal.New("http://127.0.0.1:7420", tribunal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	type row struct {
		version tribunal.Version
		value   string
	}
	rows := map[string]row{}
	reader := client.Log("orders", tribunal.LogOptions{})
	defer reader.Close()

	txn, err := client.Begin(ctx, tribunal.BeginOptions{Stores: []string{"orders"}})
	if err != nil {
		log.Fatal(err)
	}
	store, err := client.Store(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	head, err := strconv.ParseUint(store.HeadLsn, 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	for reader.Offset() < tribunal.LSN(head) {
		record, err := reader.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, write := range record.Writes {
			if write.Value == nil {
				delete(rows, write.Key)
			} else {
				rows[write.Key] = row{record.Version, string(write.Value)}
			}
		}
	}
	// The version of an absent row is 0, as is that of a missing entry.
	txn.Observe("orders", "ann", rows["ann"].version)
	txn.Put("orders", "ann", order{"ann", 10})
	verdict, err := txn.Commit(ctx)
	if err != nil {
		log.Fatal(err)
	}
	switch verdict := verdict.(type) {
	case *tribunal.Committed:
		fmt.Println("at position", verdict.LSN["orders"])
	case *tribunal.Aborted:
		fmt.Println(verdict.Reason, verdict.Conflicts)
	}
}

// A view of a store, stored elsewhere together with the position that it reflects.
func ExampleLogReader_Follow() {
	client, err := tribunal.New("http://127.0.0.1:7420", tribunal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	options := tribunal.LogOptions{}
	if known, err := client.Offset(ctx, "view", "kv"); err != nil {
		log.Fatal(err)
	} else if known != nil {
		options.After, options.Log = known.LSN, known.Log
	}
	reader := client.Log("kv", options)
	for record, err := range reader.Follow(ctx) {
		var mistake *tribunal.ClientMistake
		if errors.As(err, &mistake) && (mistake.Code() == "log_truncated" || mistake.Code() == "log_replaced") {
			log.Fatal("the view must be loaded again: ", err)
		}
		if err != nil {
			log.Fatal(err)
		}
		for _, write := range record.Writes {
			fmt.Println(write.Op, write.Key, string(write.Value))
		}
		done := tribunal.Offset{LSN: reader.Offset(), Log: reader.LogID()}
		if _, err := client.SetOffset(ctx, "view", "kv", done); err != nil {
			log.Fatal(err)
		}
	}
}

// A copy of a store: its state, and the following log.
func ExampleClient_State() {
	client, err := tribunal.New("http://127.0.0.1:7420", tribunal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(storeCopy(context.Background(), client, func(copied map[string]json.RawMessage, write tribunal.LogWrite) {
		copied[write.Key] = write.Value
	}))
}

func storeCopy(ctx context.Context, client *tribunal.Client, apply func(map[string]json.RawMessage, tribunal.LogWrite)) error {
	// As in the README.
	copied := map[string]json.RawMessage{}
	state, err := client.State(ctx, "kv")
	if err != nil {
		return err
	}
	for row, err := range state.All(ctx) { // closes the state; after Next, call Close
		if err != nil {
			return err // rows are missing: read the state from the start again
		}
		copied[row.Key] = row.Value
	}
	reader := client.Log("kv", tribunal.LogOptions{After: state.LSN, Log: state.Log})
	for record, err := range reader.Follow(ctx) {
		if err != nil {
			return err
		}
		for _, write := range record.Writes {
			apply(copied, write) // yours; an Add adds to the value that the row has
		}
	}
	return nil
}
