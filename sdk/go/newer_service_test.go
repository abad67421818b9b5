package tribunal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Answers of a newer service, with values that this client does not know.

const unknownStatus = "status `parked`, which this client does not know: the client is older than the server"

// answers gives each commit the same outcome; in a batch of three, only the second one.
func answers(outcome string) endpointScript {
	return func(kind string, ids []string, before int) (int, string) {
		line := func(id string) string { return fmt.Sprintf(`{"txn_id":%q,"epoch":"9",%s}`, id, outcome) }
		switch kind {
		case "begin":
			return works(kind, ids, before)
		case "batch":
			lines := []string{committedLine("first"), line("second"), committedLine("third")}
			return 200, `{"results":[` + strings.Join(lines, ",") + `]}`
		}
		return 200, line(ids[0]) + "\n"
	}
}

// commitsOf returns all ways to commit.
func commitsOf(t *testing.T, script endpointScript) map[string]func() (Verdict, error) {
	t.Helper()
	endpoint := startEndpoint(t, script)
	client := clientOf(t, Options{}, endpoint.url)
	stream := client.CommitStream()
	t.Cleanup(stream.Close)
	prepared := preparedOf(t, client)
	return map[string]func() (Verdict, error){
		"Commit": func() (Verdict, error) { return client.Commit(t.Context(), prepared) },
		"alone": func() (Verdict, error) {
			return clientOf(t, Options{NoCoalesce: true}, endpoint.url).Commit(t.Context(), prepared)
		},
		"CommitStream": func() (Verdict, error) { return stream.Commit(t.Context(), prepared) },
		"Batch": func() (Verdict, error) {
			results, err := client.Batch(t.Context(), []*PreparedCommit{preparedOf(t, client), prepared, preparedOf(t, client)})
			if err != nil {
				return nil, err
			}
			for _, at := range []int{0, 2} {
				if _, ok := results[at].Verdict.(*Committed); !ok {
					t.Error(results[at].Verdict, results[at].Err)
				}
			}
			return results[1].Verdict, results[1].Err
		},
	}
}

func TestAnAbortForAnUnknownReasonIsAnAbort(t *testing.T) {
	conflict := `"conflicts":[{"store":"kv","key":"a","op":"lease","stage":"later"}]`
	for name, commit := range commitsOf(t, answers(`"status":"aborted","reason":"lease_lost","retryable":true,`+conflict)) {
		verdict, err := commit()
		aborted, ok := verdict.(*Aborted)
		if !ok || aborted.Reason != "lease_lost" || !aborted.Retryable || aborted.Conflicts[0].Op != "lease" {
			t.Errorf("%s: %+v, %v", name, verdict, err)
		}
	}
}

func TestRunRepeatsAnUnknownAbortOnlyIfTheServiceSaysSo(t *testing.T) {
	for says, attempts := range map[string]int{`,"retryable":true`: 2, `,"retryable":false`: 1, "": 1} {
		commits := 0
		endpoint := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
			if kind != "commit" {
				return works(kind, ids, before)
			}
			if commits++; commits > 1 {
				return works(kind, ids, before)
			}
			return answers(`"status":"aborted","reason":"lease_lost"`+says)(kind, ids, before)
		})
		client := clientOf(t, Options{Retry: RetryPolicy{WaitMin: time.Millisecond}}, endpoint.url)
		_, err := client.Run(t.Context(), BeginOptions{}, func(_ context.Context, txn *Transaction) error {
			txn.Put("kv", "a", 1)
			return nil
		})
		var final *TransactionAborted
		if isFinal := errors.As(err, &final); isFinal != (attempts == 1) || commits != attempts {
			t.Errorf("%q: %d attempts, %v", says, commits, err)
		}
	}
}

func TestACommitWithAnUnknownStatusHasAnUnknownOutcome(t *testing.T) {
	for name, commit := range commitsOf(t, answers(`"status":"parked"`)) {
		verdict, err := commit()
		var unknown *OutcomeUnknown
		if !errors.As(err, &unknown) || unknown.TxnID == "" || !strings.Contains(err.Error(), unknownStatus) {
			t.Errorf("%s: %v, %v", name, verdict, err)
		}
	}
}

func TestAnUnknownStatusIsAnErrorThatNamesIt(t *testing.T) {
	client := clientOf(t, Options{}, startEndpoint(t, func(string, []string, int) (int, string) {
		return 200, `{"status":"parked","txn_id":"txn","epoch":"9"}`
	}).url)
	_, status := client.Status(t.Context(), "txn", false, 0)
	_, abort := client.Abort(t.Context(), "txn")
	_, validate := client.Validate(t.Context(), preparedOf(t, client))
	for name, err := range map[string]error{"Status": status, "Abort": abort, "Validate": validate} {
		var unexpected *ServerMisbehaved
		if !errors.As(err, &unexpected) || !strings.Contains(err.Error(), unknownStatus) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
