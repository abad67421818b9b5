package tribunal

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// silent starts a service that answers no request.
func silent(t *testing.T) (url string, arrived chan string) {
	t.Helper()
	arrived = make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// The server only notices the end of a connection if it has read the body.
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- r.URL.Path
		<-r.Context().Done()
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL, arrived
}

// requestsOf has a client's requests to begin, read, run and look up a transaction.
func requestsOf(client *Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Begin": func(ctx context.Context) error { _, err := client.Begin(ctx, BeginOptions{}); return err },
		"Row":   func(ctx context.Context) error { _, err := client.Row(ctx, "kv", "a"); return err },
		"Rows":  func(ctx context.Context) error { _, err := client.Rows(ctx, "kv", KeyRange{Limit: 1}); return err },
		"Run": func(ctx context.Context) error {
			_, err := client.Run(ctx, BeginOptions{}, func(context.Context, *Transaction) error { return nil })
			return err
		},
		"Status": func(ctx context.Context) error { _, err := client.Status(ctx, "t", false, 0); return err },
		"Log":    func(ctx context.Context) error { _, err := client.Log("kv", LogOptions{}).Next(ctx); return err },
	}
}

func TestARequestWhoseContextEndsReturnsTheErrorOfTheContext(t *testing.T) {
	for _, count := range []int{1, 2} {
		for _, alone := range []bool{false, true} {
			url, arrived := silent(t)
			client, err := NewWithEndpoints([]string{url, url + "/."}[:count], Options{NoCoalesce: alone})
			if err != nil {
				t.Fatal(err)
			}
			// First, because requests to late may still arrive afterwards.
			for name, request := range requestsOf(client) {
				cancelled, cancel := context.WithCancel(t.Context())
				cancel()
				var unavailable *Unavailable
				if err := request(cancelled); !errors.Is(err, context.Canceled) || errors.As(err, &unavailable) {
					t.Errorf("%s: %v", name, err)
				}
				if len(arrived) > 0 {
					t.Errorf("%s sent a request to %s", name, <-arrived)
				}
			}
			for name, request := range requestsOf(client) {
				var unavailable *Unavailable
				// On a busy machine the first requests may end before they are sent.
				for wait, isSent := 20*time.Millisecond, false; !isSent; wait *= 2 {
					late, cancel := context.WithTimeout(t.Context(), wait)
					if err := request(late); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &unavailable) {
						t.Errorf("%s: %v", name, err)
					}
					cancel()
					select {
					case <-arrived:
						isSent = true
					case <-time.After(wait):
					}
				}
			}
		}
	}
}

func TestARequestThatExceedsTheTimeoutOfTheClientIsUnavailable(t *testing.T) {
	url, _ := silent(t)
	client, err := New(url, Options{Timeout: 10 * time.Millisecond, Retry: RetryPolicy{AttemptsMax: 2}})
	if err != nil {
		t.Fatal(err)
	}
	for name, request := range requestsOf(client) {
		var unavailable *Unavailable
		err := request(t.Context())
		if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "no response within") {
			t.Errorf("%s: %v", name, err)
		}
		// No context of the caller has ended.
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestACallWhoseContextEndsTellsWhyTheAttemptBeforeFailed(t *testing.T) {
	service := newScripted(t, func(kind string, _ int) (int, string) {
		if kind == "commit" {
			return 504, problemText(504, "outcome_unknown")
		}
		return 503, problemText(503, "no_majority")
	}, httptest.NewServer)
	retry := RetryPolicy{AttemptsMax: 1000, WaitMin: time.Hour, WaitMax: time.Hour}
	client := service.client(t, Options{Timeout: 10 * time.Hour, Retry: retry})
	requests := requestsOf(client)
	delete(requests, "Begin")
	delete(requests, "Status")
	requests["Commit"] = func(ctx context.Context) error {
		_, err := client.Commit(ctx, preparedOf(t, client))
		return err
	}
	for name, request := range requests {
		// On a busy machine the first requests may end before they are answered.
		for wait, isTold := 100*time.Millisecond, false; !isTold; wait *= 2 {
			late, cancel := context.WithTimeout(t.Context(), wait)
			var unavailable *Unavailable
			err := request(late)
			cancel()
			isTold = err != nil && strings.Contains(err.Error(), "no_majority")
			if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &unavailable) || !isTold && wait > time.Minute {
				t.Fatalf("%s: %v", name, err)
			}
			var unknown *OutcomeUnknown
			if isTold && errors.As(err, &unknown) != (name == "Commit") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestARunTellsHowManyAttemptsItMade(t *testing.T) {
	service := newScripted(t, func(kind string, before int) (int, string) {
		if kind == "begin" {
			return begunReply(before, 7)
		}
		return abortedReply("read_conflict")
	}, httptest.NewServer)
	client := service.client(t, Options{Retry: RetryPolicy{AttemptsMax: 3}})
	_, err := client.Run(t.Context(), BeginOptions{}, func(_ context.Context, txn *Transaction) error {
		txn.Put("kv", "a", 1)
		return nil
	})
	var aborted *TransactionAborted
	if !errors.As(err, &aborted) || aborted.Attempts != 3 || !strings.Contains(err.Error(), "after 3 attempts") {
		t.Error(err)
	}
}

func TestACommitWhoseContextHasEndedIsNotSent(t *testing.T) {
	url, arrived := silent(t)
	for _, alone := range []bool{false, true} {
		client, err := New(url, Options{NoCoalesce: alone})
		if err != nil {
			t.Fatal(err)
		}
		stream := client.CommitStream()
		defer stream.Close()
		prepared := preparedOf(t, client)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for name, commit := range map[string]func() error{
			"Commit":       func() error { _, err := client.Commit(cancelled, prepared); return err },
			"Batch":        func() error { _, err := client.Batch(cancelled, []*PreparedCommit{prepared}); return err },
			"Validate":     func() error { _, err := client.Validate(cancelled, prepared); return err },
			"CommitStream": func() error { _, err := stream.Commit(cancelled, prepared); return err },
			"Transaction":  func() error { _, err := client.BeginLocal("").Commit(cancelled); return err },
		} {
			var unknown *OutcomeUnknown
			if err := commit(); !errors.Is(err, context.Canceled) || errors.As(err, &unknown) {
				t.Errorf("%s: %v", name, err)
			}
		}
		time.Sleep(20 * time.Millisecond)
		if len(arrived) > 0 {
			t.Errorf("a request was sent to %s", <-arrived)
		}
	}
}

func TestACommitThatWaitsForAPlaceInAStreamIsNotSentOnceItsContextEnds(t *testing.T) {
	url, _ := silent(t)
	client, err := New(url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	stream := client.CommitStream()
	defer stream.Close()
	// The window is full.
	stream.window.commits, stream.window.bytes = streamCommitsMax, streamBytesMax
	late, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var unavailable *Unavailable
	if _, err := stream.Commit(late, preparedOf(t, client)); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &unavailable) {
		t.Error(err)
	}
}

// A Close must not hide that a commit may have been accepted.
func TestAStreamThatIsClosedWhileACommitIsMovedToAnotherEndpointResolvesIt(t *testing.T) {
	moved := make(chan struct{})
	var stream *CommitStream
	script := func(kind string, ids []string, _ int) (int, string) {
		if kind != "stream" {
			return 200, wonLine(ids[0])
		}
		stream.mutex.Lock()
		stream.closed = true
		stream.mutex.Unlock()
		close(moved)
		return isLost, ""
	}
	first, second := startEndpoint(t, script), startEndpoint(t, script)
	client, err := NewWithEndpoints([]string{first.url, second.url}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	stream = client.CommitStream()
	prepared := preparedOf(t, client)
	verdict, err := stream.Commit(t.Context(), prepared)
	<-moved
	checkCommitted(t, prepared, verdict, err)
}

func TestALimitThatDoesNotFitIsNotTruncated(t *testing.T) {
	for limit, sent := range map[int]int32{1<<32 + 5: 1<<31 - 1, -1<<32 + 5: -1 << 31, 0: 0, 7: 7} {
		if got := *limitOf(limit); got != sent {
			t.Errorf("%d became %d", limit, got)
		}
	}
}

func TestARangeWithoutALimitHasTheDefaultOne(t *testing.T) {
	service := newScripted(t, func(string, int) (int, string) {
		status, body := begunReply(0, 7)
		return status, strings.TrimSuffix(body, "}") + `,"ranges":[{"rows":[],"more":false}]}`
	}, httptest.NewServer)
	begin := BeginOptions{Stores: []string{"kv"}, Ranges: map[string][]KeyRange{"kv": {{Start: "a", End: "b"}}}}
	txn, err := service.client(t, Options{}).Begin(t.Context(), begin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := txn.Scan(t.Context(), "kv", "a", "b", 1_000); err != nil || service.requests() != 1 {
		t.Error(err, service.requests())
	}
}

func TestAWaitIsDrawnBelowABoundThatDoublesUpToTheLongest(t *testing.T) {
	for _, policy := range []RetryPolicy{{}, {WaitMin: durationMax, WaitMax: durationMax}, {WaitMin: 2, WaitMax: 1}, {WaitMin: 1}} {
		policy = policy.withDefaults()
		for failed := 1; failed < 100; failed++ {
			bound := policy.WaitMax
			if failed < 10 {
				bound = min(policy.WaitMax, policy.WaitMin*time.Duration(1<<(failed-1)))
			}
			if policy.WaitMin == durationMax {
				bound = durationMax
			}
			if step := policy.step(failed); step < 0 || step > bound {
				t.Error(policy, failed, step)
			}
		}
	}
}
