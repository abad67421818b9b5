package tribunal_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	tribunal "tribunal.internal/client"
	"tribunal.internal/client/wire"
)

// serverURL returns the URL of the server that tests/clients.sh started.
func serverURL(t *testing.T) string {
	t.Helper()
	url := os.Getenv("TRIBUNAL_URL")
	if url == "" {
		t.Fatal("TRIBUNAL_URL is not set: run tests/clients.sh go")
	}
	return url
}

func connected(t *testing.T) *tribunal.Client {
	t.Helper()
	return connectedTo(t, serverURL(t), tribunal.Options{})
}

func connectedTo(t *testing.T, url string, options tribunal.Options) *tribunal.Client {
	t.Helper()
	client, err := tribunal.New(url, options)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// freshPrefix returns a prefix of keys that no other test uses.
func freshPrefix() string { return "go/" + uuid.NewString() + "/" }

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func committed(t *testing.T, verdict tribunal.Verdict, err error) *tribunal.Committed {
	t.Helper()
	won, ok := verdict.(*tribunal.Committed)
	if err != nil || !ok {
		t.Fatalf("did not commit: %+v, %v", verdict, err)
	}
	return won
}

func aborted(t *testing.T, verdict tribunal.Verdict, err error) *tribunal.Aborted {
	t.Helper()
	lost, ok := verdict.(*tribunal.Aborted)
	if err != nil || !ok {
		t.Fatalf("did not abort: %+v, %v", verdict, err)
	}
	return lost
}

func put(t *testing.T, client *tribunal.Client, key string, value any) *tribunal.Committed {
	t.Helper()
	txn := client.BeginLocal("")
	txn.Put("kv", key, value)
	verdict, err := txn.Commit(t.Context())
	return committed(t, verdict, err)
}

// read returns the value of a row as text.
func read(t *testing.T, client *tribunal.Client, key string) string {
	t.Helper()
	value := ""
	_, err := client.Run(t.Context(), tribunal.BeginOptions{}, func(ctx context.Context, txn *tribunal.Transaction) error {
		row, err := txn.Get(ctx, "kv", key)
		if row != nil {
			value = string(row.Value)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestACommitWritesRowsThatLaterTransactionsRead(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	first := must[*tribunal.Transaction](t)(client.Begin(ctx, tribunal.BeginOptions{Stores: []string{"kv"}}))
	if row, err := first.Get(ctx, "kv", prefix+"a"); row != nil || err != nil {
		t.Fatal(row, err)
	}
	first.Insert("kv", prefix+"a", map[string]int64{"balance": 1<<62 + 1})
	first.Put("kv", "\xff"+prefix, []any{1, "two", nil})
	own := must[*tribunal.Row](t)(first.Get(ctx, "kv", prefix+"a"))
	equal(t, "own write", string(own.Value), `{"balance":4611686018427387905}`)
	verdict, err := first.Commit(ctx)
	won := committed(t, verdict, err)
	if won.Version == 0 || won.LSN["kv"] == 0 {
		t.Fatalf("%+v", won)
	}

	second := must[*tribunal.Transaction](t)(client.Begin(ctx, tribunal.BeginOptions{
		Stores: []string{"kv"}, Session: won.Session, Wait: 5 * time.Second,
	}))
	if snapshot, ok := second.Snapshot("kv"); !ok || snapshot < won.Epoch {
		t.Error(snapshot, ok)
	}
	row := must[*tribunal.Row](t)(second.Get(ctx, "kv", prefix+"a"))
	equal(t, "version", row.Version, won.Version)
	var account struct{ Balance int64 }
	if err := row.Decode(&account); err != nil {
		t.Fatal(err)
	}
	equal(t, "a value beyond a float's precision", account.Balance, 1<<62+1)
	binary := must[*tribunal.Row](t)(client.Row(ctx, "kv", "\xff"+prefix))
	equal(t, "value", string(binary.Value), `[1,"two",null]`)
	second.Update("kv", prefix+"a", nil)
	second.Delete("kv", "\xff"+prefix)
	verdict, err = second.Commit(ctx)
	committed(t, verdict, err)
	equal(t, "null is a value", read(t, client, prefix+"a"), "null")
}

func TestKeysThatResemblePathsOrEscapesAreTakenLiterally(t *testing.T) {
	client, ctx := connected(t), t.Context()
	for _, key := range []string{".", "..", "a/../b", "%2e%2e", "grün ?&#+", "\xff\x00"} {
		won := put(t, client, key, "here")
		txn := must[*tribunal.Transaction](t)(client.Begin(ctx, tribunal.BeginOptions{Session: won.Session, Wait: 5 * time.Second}))
		row := must[*tribunal.Row](t)(txn.Get(ctx, "kv", key))
		if row == nil || row.Key != key || string(row.Value) != `"here"` {
			t.Errorf("%q: %+v", key, row)
		}
		rows := must[[]tribunal.Row](t)(txn.Scan(ctx, "kv", key, key+"\x00", 10))
		if len(rows) != 1 || rows[0].Key != key {
			t.Errorf("%q: %+v", key, rows)
		}
	}
}

func TestAnAbortNamesTheConflictingRowAndItsVersions(t *testing.T) {
	client, key, ctx := connected(t), freshPrefix()+"a", t.Context()
	version := put(t, client, key, 1).Version
	one, two := client.BeginLocal(""), client.BeginLocal("")
	for _, txn := range []*tribunal.Transaction{one, two} {
		txn.Observe("kv", key, version)
		txn.Update("kv", key, 2)
	}
	verdict, err := one.Commit(ctx)
	winner := committed(t, verdict, err)
	equal(t, "dry run", must[*wire.TxnOutcome](t)(two.Validate(ctx)).Status, wire.TxnStateWouldAbort)
	verdict, err = two.Commit(ctx)
	loser := aborted(t, verdict, err)
	equal(t, "reason", loser.Reason, "read_conflict")
	equal(t, "retryable", loser.Retryable, true)
	equal(t, "conflicts", len(loser.Conflicts), 1)
	conflict := loser.Conflicts[0]
	equal(t, "key", conflict.Store+"/"+conflict.Key, "kv/"+key)
	equal(t, "read", conflict.ReadVersion, version)
	equal(t, "current", conflict.CurrentVersion, winner.Version)
}

func TestAPhantomInAScannedRangeAborts(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	txn := must[*tribunal.Transaction](t)(client.Begin(ctx, tribunal.BeginOptions{}))
	txn.Put("kv", prefix+"own", 0)
	rows := must[[]tribunal.Row](t)(txn.Scan(ctx, "kv", prefix, prefix+"~", 10))
	if len(rows) != 1 || rows[0].Key != prefix+"own" {
		t.Fatal(rows)
	}
	other := client.BeginLocal("")
	other.Insert("kv", prefix+"phantom", 1)
	verdict, err := other.Commit(ctx)
	won := committed(t, verdict, err)
	verdict, err = txn.Commit(ctx)
	equal(t, "reason", aborted(t, verdict, err).Reason, "range_conflict")
	again := must[*tribunal.Transaction](t)(client.Begin(ctx, tribunal.BeginOptions{Session: won.Session, Wait: 5 * time.Second}))
	rows = must[[]tribunal.Row](t)(again.Scan(ctx, "kv", prefix, prefix+"~", 10))
	if len(rows) != 1 || rows[0].Version != won.Version || string(rows[0].Value) != "1" {
		t.Fatal(rows)
	}
}

func TestRunRepeatsTheWorkOnFreshReadsAfterAConflict(t *testing.T) {
	client, key := connected(t), freshPrefix()+"a"
	options := tribunal.BeginOptions{Session: put(t, client, key, 1).Session, Wait: 5 * time.Second}
	var seen []int
	_, err := client.Run(t.Context(), options, func(ctx context.Context, txn *tribunal.Transaction) error {
		row, err := txn.Get(ctx, "kv", key)
		if err != nil {
			return err
		}
		var value int
		if err := row.Decode(&value); err != nil {
			return err
		}
		if seen = append(seen, value); len(seen) == 1 {
			put(t, client, key, 10) // Somebody else is faster, once.
		}
		txn.Put("kv", key, value+1)
		return nil
	})
	if err != nil || len(seen) < 2 || seen[0] != 1 {
		t.Fatal(seen, err)
	}
	equal(t, "value", read(t, client, key), "11")
}

func TestNoIncrementOfManyConcurrentOnesIsLost(t *testing.T) {
	client, key := connected(t), freshPrefix()+"counter"
	options := tribunal.BeginOptions{Session: put(t, client, key, 0).Session, Wait: 5 * time.Second}
	var workers sync.WaitGroup
	for range 8 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for range 5 {
				_, err := client.Run(t.Context(), options, func(ctx context.Context, txn *tribunal.Transaction) error {
					row, err := txn.Get(ctx, "kv", key)
					if err != nil {
						return err
					}
					var value int
					err = row.Decode(&value)
					txn.Update("kv", key, value+1)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	workers.Wait()
	equal(t, "value", read(t, client, key), "40")
}

func TestRunDoesNotRepeatFinalAbortsOrErrorsOfTheWork(t *testing.T) {
	client, key, attempts := connected(t), freshPrefix()+"a", 0
	put(t, client, key, "text")
	run := func(work func(context.Context, *tribunal.Transaction) error) error {
		_, err := client.Run(t.Context(), tribunal.BeginOptions{}, func(ctx context.Context, txn *tribunal.Transaction) error {
			attempts++
			return work(ctx, txn)
		})
		return err
	}
	var end *tribunal.TransactionAborted
	err := run(func(_ context.Context, txn *tribunal.Transaction) error { txn.Insert("kv", key, 2); return nil })
	if !errors.As(err, &end) || end.Aborted.Reason != "row_exists" {
		t.Error(err)
	}
	err = run(func(ctx context.Context, txn *tribunal.Transaction) error {
		_, err := txn.Get(ctx, "kv", key+"/other")
		txn.Add("kv", key, 2)
		return err
	})
	if !errors.As(err, &end) || end.Aborted.Reason != "not_a_number" {
		t.Error(err)
	}
	mine := errors.New("mine")
	if err := run(func(context.Context, *tribunal.Transaction) error { return mine }); !errors.Is(err, mine) {
		t.Error(err)
	}
	equal(t, "attempts", attempts, 3)
}

func TestAddsOfOneRowAllCount(t *testing.T) {
	client, key := connected(t), freshPrefix()+"sum"
	put(t, client, key, 10)
	var adding sync.WaitGroup
	for delta := range 10 {
		adding.Add(1)
		go func() {
			defer adding.Done()
			txn := client.BeginLocal("")
			txn.Add("kv", key, int64(delta))
			verdict, err := txn.Commit(t.Context())
			if _, ok := verdict.(*tribunal.Committed); !ok {
				t.Error(verdict, err)
			}
		}()
	}
	adding.Wait()
	equal(t, "sum", read(t, client, key), "55")
}

func TestABatchReturnsTheResultOfEachCommitInOrder(t *testing.T) {
	client, prefix := connected(t), freshPrefix()
	good, blocked, lost := client.BeginLocal(""), client.BeginLocal(""), client.BeginLocal("")
	good.Insert("kv", prefix+"a", 1)
	blocked.Update("kv", prefix+"missing", 1)
	lost.Put("nowhere", "a", 1)
	results := must[[]tribunal.Result](t)(client.Batch(t.Context(), prepared(t, good, blocked, lost)))
	committed(t, results[0].Verdict, results[0].Err)
	equal(t, "reason", aborted(t, results[1].Verdict, results[1].Err).Reason, "row_missing")
	var mistake *tribunal.ClientMistake
	if !errors.As(results[2].Err, &mistake) || mistake.Code() != "unknown_store" {
		t.Error(results[2])
	}
}

func prepared(t *testing.T, txns ...*tribunal.Transaction) []*tribunal.PreparedCommit {
	t.Helper()
	var commits []*tribunal.PreparedCommit
	for _, txn := range txns {
		commits = append(commits, must[*tribunal.PreparedCommit](t)(txn.Prepare()))
	}
	return commits
}

func TestTheLogIsReadInOrderFromAnOffsetAndWaitsForFurtherRecords(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	first := put(t, client, prefix+"a", 1).LSN["kv"]
	put(t, client, prefix+"b", 2)
	seen := ""
	note := func(record *tribunal.LogRecord) (mine bool) {
		for _, write := range record.Writes {
			if name, ok := strings.CutPrefix(write.Key, prefix); ok {
				seen += string(write.Op) + " " + name + " " + string(write.Value) + "; "
				mine = true
			}
		}
		return mine
	}
	page := client.Log("kv", tribunal.LogOptions{After: first - 1, Wait: -1, PageMax: 1})
	for record, err := range page.All(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		note(record)
	}
	equal(t, "offset", page.Offset(), page.Head())

	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(200 * time.Millisecond)
		txn := client.BeginLocal("")
		txn.Put("kv", prefix+"c", 3)
		if _, err := txn.Commit(ctx); err != nil {
			t.Error(err)
		}
	}()
	tail := client.Log("kv", tribunal.LogOptions{After: page.Offset()})
	for record, err := range tail.Follow(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if note(record) {
			break
		}
	}
	<-done
	equal(t, "seen", seen, "put a 1; put b 2; put c 3; ")
	stopped, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	for record, err := range tail.Follow(stopped) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(record, err)
		}
	}
}

func TestMistakesHaveACodeAndPointersAndAreNotRetried(t *testing.T) {
	client, ctx := connected(t), t.Context()
	txn := client.BeginLocal("")
	txn.Put("kv", "a", 1)
	commit := prepared(t, txn)[0]
	(*commit.Request.Writes)[0].Key = nil
	var mistake *tribunal.ClientMistake
	if _, err := client.Commit(ctx, commit); !errors.As(err, &mistake) || mistake.Problem.Retryable ||
		!strings.Contains(err.Error(), "/writes/0") {
		t.Error(err)
	}
	if _, err := client.Begin(ctx, tribunal.BeginOptions{Stores: []string{"nowhere"}}); !errors.As(err, &mistake) {
		t.Error(err)
	}
	var misuse *tribunal.Misuse
	txn.Put("kv", "b", make(chan int))
	txn.Put("kv", "c", 1)
	if _, err := txn.Commit(ctx); !errors.As(err, &misuse) {
		t.Error(err)
	}
	if _, err := tribunal.New("localhost:7420", tribunal.Options{}); !errors.As(err, &misuse) {
		t.Error(err)
	}
	nobody := connectedTo(t, "http://127.0.0.1:1", tribunal.Options{Retry: tribunal.RetryPolicy{AttemptsMax: 2}})
	var unavailable *tribunal.Unavailable
	work := func(context.Context, *tribunal.Transaction) error { return nil }
	if _, err := nobody.Run(ctx, tribunal.BeginOptions{}, work); !errors.As(err, &unavailable) || unavailable.Problem != nil {
		t.Error(err)
	}
}

func TestTheStateOfStoresIsReported(t *testing.T) {
	client, ctx := connected(t), t.Context()
	if stores := must[[]wire.StoreInfo](t)(client.Stores(ctx)); len(stores) == 0 {
		t.Error("no store")
	}
	equal(t, "existence", must[*wire.StoreInfo](t)(client.Store(ctx, "kv")).Existence, wire.Tracked)
	declared := wire.Declared
	info := must[*wire.StoreInfo](t)(client.DeclareStore(ctx, "only-log-go", wire.StoreDeclaration{Existence: &declared}))
	equal(t, "push", info.Push.State, "log_only")
	if !json.Valid([]byte(read(t, client, "nothing") + "0")) {
		t.Error("an absent row has no value")
	}
}

// sessions commits from 64 sessions to disjoint rows, and checks every verdict. It returns how many were resolved.
func sessions(t *testing.T, client *tribunal.Client, rounds int) int {
	t.Helper()
	prefix, ctx := freshPrefix(), t.Context()
	var replayed atomic.Int32
	var running sync.WaitGroup
	for session := range 64 {
		running.Add(1)
		go func() {
			defer running.Done()
			key := fmt.Sprintf("%s%02d", prefix, session)
			var version tribunal.Version
			for round := range rounds {
				good, bad := client.BeginLocal(""), client.BeginLocal("")
				good.Observe("kv", key, version)
				good.Put("kv", key, round)
				// The other commit read a version that never existed.
				bad.Observe("kv", key, 1)
				bad.Put("kv", key, -1)
				verdict, err := good.Commit(ctx)
				won, ok := verdict.(*tribunal.Committed)
				if err != nil || !ok || won.TxnID != good.ID() {
					t.Errorf("%+v, %v", verdict, err)
					return
				}
				if won.Replayed {
					replayed.Add(1)
				}
				version = won.Version
				verdict, err = bad.Commit(ctx)
				lost, ok := verdict.(*tribunal.Aborted)
				if err != nil || !ok || lost.TxnID != bad.ID() || lost.Reason != "read_conflict" {
					t.Errorf("%+v, %v", verdict, err)
					return
				}
			}
		}()
	}
	running.Wait()
	txn := must[*tribunal.Transaction](t)(client.Begin(ctx, tribunal.BeginOptions{Stores: []string{"kv"}}))
	rows := must[[]tribunal.Row](t)(txn.Scan(ctx, "kv", prefix, prefix+"~", 100))
	equal(t, "rows", len(rows), 64)
	for _, row := range rows {
		equal(t, row.Key, string(row.Value), strconv.Itoa(rounds-1))
	}
	return int(replayed.Load())
}

func TestSixtyFourSessionsOnDisjointRowsEachGetTheirVerdictsInTheirOrder(t *testing.T) {
	sessions(t, connected(t), 10)
}

func TestAConsumerResumesWhereItsOffsetIs(t *testing.T) {
	client, prefix, ctx := connected(t), freshPrefix(), t.Context()
	consumer := "search-" + strings.ReplaceAll(prefix, "/", "-")
	put(t, client, prefix+"a", 1)
	if offset, err := client.Offset(ctx, consumer, "kv"); offset != nil || err != nil {
		t.Fatal(offset, err)
	}
	log := client.Log("kv", tribunal.LogOptions{Wait: -1})
	for _, err := range log.All(ctx) {
		if err != nil {
			t.Fatal(err)
		}
	}
	set := must[*tribunal.ConsumerInfo](t)(client.SetOffset(ctx, consumer, "kv", tribunal.Offset{LSN: log.Offset(), Log: log.LogID()}))
	equal(t, "offsets", len(set.Offsets), 1)
	put(t, client, prefix+"b", 2)
	offset := must[*tribunal.Offset](t)(client.Offset(ctx, consumer, "kv"))
	equal(t, "offset", *offset, tribunal.Offset{LSN: log.Offset(), Log: log.LogID()})
	for record, err := range client.Log("kv", tribunal.LogOptions{After: offset.LSN, Log: offset.Log}).Follow(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "position", record.LSN, offset.LSN+1)
		break
	}
	var mistake *tribunal.ClientMistake
	_, err := client.SetOffset(ctx, consumer, "kv", tribunal.Offset{LSN: 1_000_000_000})
	if !errors.As(err, &mistake) || mistake.Problem.Code != "position_beyond_head" {
		t.Fatal(err)
	}
	_, err = client.SetOffset(ctx, consumer, "kv", tribunal.Offset{LSN: 1, Log: strings.Repeat("0", 32)})
	if !errors.As(err, &mistake) || mistake.Problem.Code != "log_replaced" {
		t.Fatal(err)
	}
	if err := client.ForgetConsumer(ctx, consumer); err != nil {
		t.Fatal(err)
	}
	if offset, err := client.Offset(ctx, consumer, "kv"); offset != nil || err != nil {
		t.Fatal(offset, err)
	}
	if err := client.ForgetConsumer(ctx, consumer); !errors.As(err, &mistake) || mistake.Problem.Code != "unknown_consumer" {
		t.Fatal(err)
	}
}

func TestAPreparedCommitKeepsItsPriority(t *testing.T) {
	client, priority, ctx := connected(t), int32(7), t.Context()
	txn := client.BeginLocal("")
	txn.Priority = &priority
	txn.Put("kv", freshPrefix(), 1)
	commit := prepared(t, txn)[0]
	verdict, err := client.Commit(ctx, commit)
	committed(t, verdict, err)
	priority = 8
	verdict, err = client.Commit(ctx, commit)
	committed(t, verdict, err)
}
