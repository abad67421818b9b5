package tribunal

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestACommitOfABatchWithAnUnknownOutcomeIsResolvedByItsID(t *testing.T) {
	statuses := []int{504, 409, 500, 502, 503, 404}
	service := newScripted(t, func(kind string, before int) (int, string) {
		if kind == "status" {
			return committedReply(9 + before)
		}
		var items []string
		for _, status := range statuses {
			retryable := status != 404
			items = append(items, fmt.Sprintf(`{"status":"problem","problem":{"type":"about:blank","title":"x","status":%d,"detail":"x","code":"c%d","retryable":%v,"errors":[]}}`, status, status, retryable))
		}
		return 200, `{"results":[` + strings.Join(items, ",") + "]}"
	}, httptest.NewServer)
	client := service.client(t, Options{})
	var commits []*PreparedCommit
	for range statuses {
		txn := client.BeginLocal("")
		txn.Put("kv", "a", 1)
		prepared, err := txn.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		commits = append(commits, prepared)
	}
	results, err := client.Batch(t.Context(), commits)
	if err != nil {
		t.Fatal(err)
	}
	for at, result := range results[:4] {
		if won, ok := result.Verdict.(*Committed); !ok || !won.Replayed || result.Err != nil {
			t.Errorf("%d: %+v", statuses[at], result)
		}
	}
	var unavailable *Unavailable
	var mistake *ClientMistake
	if !errors.As(results[4].Err, &unavailable) || !errors.As(results[5].Err, &mistake) || service.requests() != 5 {
		t.Errorf("%+v, %d requests", results[4:], service.requests())
	}
}

// Each status request may take as long as the service takes to answer.
func TestTheOutcomesOfALostBatchAreRequestedAtTheSameTime(t *testing.T) {
	const count = 8
	var arrived atomic.Int32
	all := make(chan struct{})
	service := newScripted(t, func(kind string, before int) (int, string) {
		if kind == "status" {
			if arrived.Add(1) == count {
				close(all)
			}
			select {
			case <-all:
			// The test's context ends before the service is closed.
			case <-t.Context().Done():
			}
			return committedReply(9)
		}
		return 504, problemText(504, "outcome_unknown")
	}, httptest.NewServer)
	client := service.client(t, Options{Timeout: time.Minute, ResolveTimeout: time.Minute})
	results := batchOf(t, client, count)
	for at, result := range results {
		if _, ok := result.Verdict.(*Committed); !ok {
			t.Errorf("%d: %+v", at, result)
		}
	}
}

// Although not all of them are queried at the same time.
func TestTheOutcomesOfABatchHaveOneDeadline(t *testing.T) {
	const count = 3 * concurrentMax
	var mutex sync.Mutex
	asked := map[string]bool{}
	service := startEndpoint(t, func(kind string, ids []string, _ int) (int, string) {
		if kind == "batch" {
			line := problemLine("txn", 504, "outcome_unknown")
			return 200, `{"results":[` + strings.Repeat(line+",", count-1) + line + "]}"
		}
		mutex.Lock()
		defer mutex.Unlock()
		asked[ids[0]] = true
		return 200, `{"status":"in_flight"}`
	})
	client, err := New(service.url, Options{ResolveTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	results := batchOf(t, client, count)
	for at, result := range results {
		var unknown *OutcomeUnknown
		if !errors.As(result.Err, &unknown) {
			t.Errorf("%d: %+v", at, result)
		}
	}
	mutex.Lock()
	defer mutex.Unlock()
	if len(asked) > concurrentMax {
		t.Errorf("%d outcomes were requested, %d at a time", len(asked), concurrentMax)
	}
}

// batchOf sends count commits as a batch.
func batchOf(t *testing.T, client *Client, count int) []Result {
	t.Helper()
	var commits []*PreparedCommit
	for n := range count {
		commits = append(commits, preparedPut(t, client, n))
	}
	results, err := client.Batch(t.Context(), commits)
	if err != nil {
		t.Fatal(err)
	}
	return results
}
