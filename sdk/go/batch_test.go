package tribunal

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
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

// Each request for an outcome may take as long as the service does to answer.
func TestTheOutcomesOfALostBatchAreRequestedAtTheSameTime(t *testing.T) {
	const count = 8
	var arrived sync.WaitGroup
	arrived.Add(count)
	service := newScripted(t, func(kind string, before int) (int, string) {
		if kind == "status" {
			arrived.Done()
			arrived.Wait()
			return committedReply(9)
		}
		return 504, problemText(504, "outcome_unknown")
	}, httptest.NewServer)
	client := service.client(t, Options{Timeout: 2 * time.Second, ResolveTimeout: 2 * time.Second})
	var commits []*PreparedCommit
	for n := range count {
		commits = append(commits, preparedPut(t, client, n))
	}
	results, err := client.Batch(t.Context(), commits)
	if err != nil {
		t.Fatal(err)
	}
	for at, result := range results {
		if _, ok := result.Verdict.(*Committed); !ok {
			t.Errorf("%d: %+v", at, result)
		}
	}
}
