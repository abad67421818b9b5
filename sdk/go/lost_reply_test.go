package tribunal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	tribunal "tribunal.internal/client"
)

func TestALostReplyIsResolvedByIDAndTheCommitIsKept(t *testing.T) {
	client, proxy, key := connected(t), startProxy(t), freshPrefix()+"a"
	txn := connectedTo(t, proxy.url(), tribunal.Options{}).BeginLocal("")
	txn.Insert("kv", key, 1)
	proxy.lose(reply, "/commit")
	verdict, err := txn.Commit(t.Context())
	won := committed(t, verdict, err)
	<-proxy.lost
	equal(t, "replayed", won.Replayed, true)
	begin := tribunal.BeginOptions{Session: won.Session, Wait: 5 * time.Second}
	again := must[*tribunal.Transaction](t)(client.Begin(t.Context(), begin))
	equal(t, "version", must[*tribunal.Row](t)(again.Get(t.Context(), "kv", key)).Version, won.Version)
}

func TestALostRequestIsFencedAndRunRepeatsTheWork(t *testing.T) {
	proxy, key, ctx := startProxy(t), freshPrefix()+"a", t.Context()
	proxied := connectedTo(t, proxy.url(), tribunal.Options{})
	txn := proxied.BeginLocal("")
	txn.Insert("kv", key, 1)
	proxy.lose(request, "/commit")
	verdict, err := txn.Commit(ctx)
	equal(t, "reason", aborted(t, verdict, err).Reason, "fenced")
	// The request itself arrives late.
	verdict, err = connected(t).Commit(ctx, prepared(t, txn)[0])
	equal(t, "late", aborted(t, verdict, err).Reason, "fenced")

	var ids []string
	proxy.lose(request, "/commit")
	won, err := proxied.Run(ctx, tribunal.BeginOptions{}, func(_ context.Context, again *tribunal.Transaction) error {
		ids = append(ids, again.ID())
		again.Insert("kv", key, 2)
		return nil
	})
	if err != nil || len(ids) != 2 || ids[1] != won.TxnID {
		t.Error(won, ids, err)
	}
}

func TestAReplyThatNeverArrivesIsRequestedAfterTheTimeout(t *testing.T) {
	proxy := startProxy(t)
	txn := connectedTo(t, proxy.url(), tribunal.Options{Timeout: 3 * time.Second}).BeginLocal("")
	txn.Put("kv", freshPrefix()+"a", 1)
	proxy.lose(silence, "/commit")
	verdict, err := txn.Commit(t.Context())
	equal(t, "replayed", committed(t, verdict, err).Replayed, true)
}

func TestEachCommitOfALostBatchIsResolved(t *testing.T) {
	proxy, prefix := startProxy(t), freshPrefix()
	client := connectedTo(t, proxy.url(), tribunal.Options{})
	var txns []*tribunal.Transaction
	for n := range 3 {
		txn := client.BeginLocal("")
		txn.Insert("kv", prefix+string(rune('a'+n%2)), n)
		txns = append(txns, txn)
	}
	proxy.lose(reply, "/batch-commit")
	results := must[[]tribunal.Result](t)(client.Batch(t.Context(), prepared(t, txns...)))
	committed(t, results[0].Verdict, results[0].Err)
	committed(t, results[1].Verdict, results[1].Err)
	aborted(t, results[2].Verdict, results[2].Err)
}

func TestARepeatedCommitGetsTheSameVerdictAndIsExecutedOnce(t *testing.T) {
	client, key, ctx := connected(t), freshPrefix()+"counter", t.Context()
	put(t, client, key, 0)
	txn := client.BeginLocal("")
	txn.Add("kv", key, 5)
	commit := prepared(t, txn)[0]
	verdict, err := client.Commit(ctx, commit)
	first := committed(t, verdict, err)
	verdict, err = client.Commit(ctx, commit)
	second := committed(t, verdict, err)
	equal(t, "first", first.Replayed, false)
	equal(t, "second", second.Replayed, true)
	equal(t, "version", second.Version, first.Version)
	equal(t, "value", read(t, client, key), "5")
	status := must[tribunal.Status](t)(client.Status(ctx, commit.TxnID, false, 0))
	equal(t, "status", committed(t, status.Verdict, nil).Version, first.Version)
}

func TestAnOutcomeThatCannotBeDeterminedIsUnknown(t *testing.T) {
	proxy := startProxy(t)
	options := tribunal.Options{Timeout: 5 * time.Second, ResolveTimeout: time.Second}
	txn := connectedTo(t, proxy.url(), options).BeginLocal("")
	txn.Put("kv", freshPrefix()+"a", 1)
	proxy.lose(silence, "/commit")
	go func() {
		<-proxy.lost
		proxy.stop()
	}()
	_, err := txn.Commit(t.Context())
	var unknown *tribunal.OutcomeUnknown
	if !errors.As(err, &unknown) || unknown.TxnID != txn.ID() {
		t.Fatal(err)
	}
	// Once the service is reachable again, the id determines the outcome: the commit arrived, or never will.
	status := must[tribunal.Status](t)(connected(t).Status(t.Context(), txn.ID(), true, 5*time.Second))
	if status.Verdict == nil {
		t.Error(status)
	}
}

func TestACancelledCommitHasAnUnknownOutcome(t *testing.T) {
	proxy := startProxy(t)
	txn := connectedTo(t, proxy.url(), tribunal.Options{}).BeginLocal("")
	txn.Put("kv", freshPrefix()+"a", 1)
	proxy.lose(silence, "/commit")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-proxy.lost
		cancel()
	}()
	_, err := txn.Commit(ctx)
	var unknown *tribunal.OutcomeUnknown
	if !errors.As(err, &unknown) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestEachCommitOfABatchWhoseReplyIsLostIsResolved(t *testing.T) {
	proxy := startProxy(t)
	proxy.lose(reply, "/batch-commit")
	replayed := sessions(t, connectedTo(t, proxy.url(), tribunal.Options{}), 3)
	<-proxy.lost
	if replayed < 2 {
		t.Error(replayed)
	}
}
