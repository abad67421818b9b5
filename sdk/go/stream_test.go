package tribunal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	tribunal "tribunal.internal/client"
)

// shown returns the outcome of a commit as text.
func shown(verdict tribunal.Verdict, err error) string {
	var mistake *tribunal.ClientMistake
	var unavailable *tribunal.Unavailable
	switch verdict := verdict.(type) {
	case *tribunal.Committed:
		if verdict.Replayed {
			return "committed, replayed"
		}
		return "committed"
	case *tribunal.Aborted:
		return "aborted " + verdict.Reason
	}
	switch {
	case errors.As(err, &mistake):
		return "mistake " + mistake.Problem.Code
	case errors.As(err, &unavailable):
		return "unavailable"
	}
	return fmt.Sprint(err)
}

func together(all *sync.WaitGroup, do func()) {
	all.Add(1)
	go func() {
		defer all.Done()
		do()
	}()
}

// streamed commits concurrently, and returns the outcome of each commit.
func streamed(t *testing.T, stream *tribunal.CommitStream, commits []*tribunal.PreparedCommit) []string {
	t.Helper()
	ends := make([]string, len(commits))
	var all sync.WaitGroup
	for at, commit := range commits {
		together(&all, func() { ends[at] = shown(stream.Commit(t.Context(), commit)) })
	}
	all.Wait()
	return ends
}

func putOf(t *testing.T, client *tribunal.Client, key string) *tribunal.PreparedCommit {
	t.Helper()
	txn := client.BeginLocal("")
	txn.Put("kv", key, 1)
	return prepared(t, txn)[0]
}

func count(ends []string, what ...string) (found int) {
	for _, end := range ends {
		for _, one := range what {
			if end == one {
				found++
			}
		}
	}
	return found
}

func TestSessionsShareAStreamAndEachGetsItsVerdict(t *testing.T) {
	client, prefix := connected(t), freshPrefix()
	stream := client.CommitStream()
	defer stream.Close()
	var txns []*tribunal.Transaction
	for n := range 300 {
		txn := client.BeginLocal("")
		txn.Insert("kv", fmt.Sprint(prefix, n%150), n)
		txns = append(txns, txn)
	}
	ends := streamed(t, stream, prepared(t, txns...))
	equal(t, "committed", count(ends, "committed"), 150)
	// Which of two loses, and why, depends on whether one epoch decided both.
	equal(t, "aborted", count(ends, "aborted row_exists", "aborted write_conflict", "aborted order_conflict"), 150)
	// Own writes are visible to later transactions.
	txn := must[*tribunal.Transaction](t)(client.Begin(t.Context(), tribunal.BeginOptions{Stores: []string{"kv"}}))
	if row := must[*tribunal.Row](t)(txn.Get(t.Context(), "kv", prefix+"149")); row == nil {
		t.Error("the row is missing")
	}

	unknown, nameless := putOf(t, client, prefix+"a"), putOf(t, client, prefix+"b")
	applied, traced := putOf(t, client, prefix+"c"), putOf(t, client, prefix+"d")
	(*unknown.Request.Writes)[0].Store = "nope"
	nameless.TxnID = "nobody"
	ack := tribunal.AckApplied
	applied.Request.Ack = &ack
	traced.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ends = streamed(t, stream, []*tribunal.PreparedCommit{unknown, nameless, applied, traced})
	equal(t, "ends", fmt.Sprint(ends), "[mistake unknown_store mistake bad_txn_id committed committed]")

	repeated := putOf(t, client, prefix+"e")
	equal(t, "first", shown(stream.Commit(t.Context(), repeated)), "committed")
	equal(t, "second", shown(stream.Commit(t.Context(), repeated)), "committed, replayed")
	stream.Close()
	var misuse *tribunal.Misuse
	if _, err := stream.Commit(t.Context(), repeated); !errors.As(err, &misuse) {
		t.Error(err)
	}
}

func TestEveryCommitOfABrokenStreamIsResolved(t *testing.T) {
	direct := connected(t)
	for what, how := range []loss{reply, request} {
		proxy, prefix := startProxy(t), freshPrefix()
		client := connectedTo(t, proxy.url(), tribunal.Options{})
		stream := client.CommitStream()
		equal(t, "first", shown(stream.Commit(t.Context(), putOf(t, client, prefix+"first"))), "committed")
		// The next write breaks the connection.
		proxy.lose(how, "")
		var commits []*tribunal.PreparedCommit
		for n := range 200 {
			commits = append(commits, putOf(t, client, fmt.Sprint(prefix, n)))
		}
		for at, end := range streamed(t, stream, commits) {
			if count([]string{end}, "committed", "committed, replayed", "aborted fenced") == 0 {
				t.Fatal(what, end)
			}
			status := must[tribunal.Status](t)(direct.Status(t.Context(), commits[at].TxnID, false, 5*time.Second))
			_, won := status.Verdict.(*tribunal.Committed)
			equal(t, end, won, end != "aborted fenced")
		}
		// The next commit connects again.
		equal(t, "again", shown(stream.Commit(t.Context(), putOf(t, client, prefix+"again"))), "committed")
		stream.Close()
	}
}

func TestASilentStreamIsGivenUp(t *testing.T) {
	proxy, prefix := startProxy(t), freshPrefix()
	client := connectedTo(t, proxy.url(), tribunal.Options{Timeout: 3 * time.Second})
	stream := client.CommitStream()
	defer stream.Close()
	proxy.lose(silence, "/v1/txns/stream")
	end := shown(stream.Commit(t.Context(), putOf(t, client, prefix+"a")))
	equal(t, end, count([]string{end}, "committed, replayed", "aborted fenced"), 1)
	// Sent a second time if the first answer took longer than the client waits.
	again := shown(stream.Commit(t.Context(), putOf(t, client, prefix+"b")))
	equal(t, "again", strings.TrimSuffix(again, ", replayed"), "committed")
	proxy.stop()
	stopped := connectedTo(t, proxy.url(), tribunal.Options{ResolveTimeout: 300 * time.Millisecond}).CommitStream()
	equal(t, "stopped", shown(stopped.Commit(t.Context(), putOf(t, client, prefix+"c"))), "unavailable")
}

func TestACancelledCommitOfAStreamHasAnUnknownOutcome(t *testing.T) {
	proxy := startProxy(t)
	client := connectedTo(t, proxy.url(), tribunal.Options{})
	stream := client.CommitStream()
	defer stream.Close()
	proxy.lose(silence, "/v1/txns/stream")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-proxy.lost
		cancel()
	}()
	_, err := stream.Commit(ctx, putOf(t, client, freshPrefix()+"a"))
	var unknown *tribunal.OutcomeUnknown
	if !errors.As(err, &unknown) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
