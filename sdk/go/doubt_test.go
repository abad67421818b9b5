package tribunal

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRunDoesNotSendACommitAgainThatMayBeDurable(t *testing.T) {
	service := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
		switch {
		case kind == "begin":
			return works(kind, ids, before)
		case kind == "commit" && before == 1:
			// Accepted; then the service goes down.
			return isLost, ""
		}
		return 503, troubleText(503, "stopping")
	})
	_, err := clientOf(t, Options{ResolveTimeout: time.Second}, service.url).Run(t.Context(), BeginOptions{}, func(_ context.Context, txn *Transaction) error {
		txn.Put("kv", "a", 1)
		return nil
	})
	var unknown *OutcomeUnknown
	commits := 0
	for _, request := range service.asked() {
		if kindOfPath(request.path) == "commit" {
			commits++
		}
	}
	if !errors.As(err, &unknown) || commits != 1 {
		t.Errorf("%d commits: %v", commits, err)
	}
}

func TestAnUnknownOutcomeIsNoErrorThatDecidedNothing(t *testing.T) {
	var unavailable *Unavailable
	if err := error(&OutcomeUnknown{"a", &Unavailable{Err: errors.New("refused")}}); errors.As(err, &unavailable) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := error(&OutcomeUnknown{"a", gaveUp(ctx, &Unavailable{})}); !errors.Is(err, context.Canceled) || errors.As(err, &unavailable) {
		t.Error(err)
	}
}

// unclear has responses to a commit that do not determine its outcome.
var unclear = map[string]func() (int, string){
	"503 of a proxy":  func() (int, string) { return 503, "upstream connect error or disconnect/reset before headers" },
	"520 of a proxy":  func() (int, string) { return 520, "<html>unknown error</html>" },
	"page of a proxy": func() (int, string) { return 200, "<html>Please log in</html>" },
	"broken":          func() (int, string) { return 200, `{"status":"commit` },
	"other form":      func() (int, string) { return 200, `{"status":7}` },
}

func TestACommitWhoseResponseIsUnclearIsResolvedByItsID(t *testing.T) {
	for name, reply := range unclear {
		for _, count := range []int{1, 2} {
			script := func(kind string, ids []string, before int) (int, string) {
				if kind == "status" {
					return works(kind, ids, before)
				}
				status, text := reply()
				if kind == "stream" {
					// The endpoint keeps a stream open if the response has a body.
					text = ""
				}
				return status, text
			}
			var urls []string
			for range count {
				urls = append(urls, startEndpoint(t, script).url)
			}
			client := clientOf(t, Options{}, urls...)
			ways := map[string]func(*PreparedCommit) (Verdict, error){
				"coalesced": func(p *PreparedCommit) (Verdict, error) { return client.Commit(t.Context(), p) },
				"traced": func(p *PreparedCommit) (Verdict, error) {
					p.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
					return client.Commit(t.Context(), p)
				},
				"batch": func(p *PreparedCommit) (Verdict, error) {
					results, err := client.Batch(t.Context(), []*PreparedCommit{p})
					if err != nil {
						return nil, err
					}
					return results[0].Verdict, results[0].Err
				},
				"stream": func(p *PreparedCommit) (Verdict, error) {
					stream := client.CommitStream()
					defer stream.Close()
					return stream.Commit(t.Context(), p)
				},
			}
			if status, _ := reply(); status == 200 {
				// Another test covers the lines that a stream cannot read.
				delete(ways, "stream")
			}
			for way, commit := range ways {
				prepared := preparedOf(t, client)
				verdict, err := commit(prepared)
				if won, ok := verdict.(*Committed); !ok || won.TxnID != prepared.TxnID || !won.Replayed {
					t.Errorf("%s, %s, %d endpoints: %v, %v", way, name, count, verdict, err)
				}
			}
		}
	}
}

func TestABatchWithTooFewResultsIsResolvedByItsIDs(t *testing.T) {
	service := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
		if kind == "status" {
			return works(kind, ids, before)
		}
		return 200, `{"results":[` + committedLine("one") + `]}`
	})
	for at, result := range batchOf(t, clientOf(t, Options{}, service.url), 2) {
		if won, ok := result.Verdict.(*Committed); !ok || !won.Replayed {
			t.Errorf("%d: %+v", at, result)
		}
	}
}

// The commits that an endpoint could not decide.
func TestCommitsOfABatchAreSentAgainWithinOneTimeout(t *testing.T) {
	const count = 6 * concurrentMax
	lines := ""
	for range count {
		lines += "," + problemLine("txn", 503, "stopping")
	}
	script := func(kind string, _ []string, _ int) (int, string) {
		if kind == "batch" {
			return 200, `{"results":[` + lines[1:] + "]}"
		}
		if kind == "status" {
			return 200, `{"status":"in_flight"}`
		}
		return isSilent, ""
	}
	client := clientOf(t, Options{Timeout: 2 * time.Second, ResolveTimeout: time.Second}, startEndpoint(t, script).url, startEndpoint(t, script).url)
	begun := time.Now()
	results := batchOf(t, client, count)
	if took := time.Since(begun); took > time.Minute {
		t.Error(took)
	}
	var unavailable *Unavailable
	var unknown *OutcomeUnknown
	for at, result := range results {
		// A commit that was not resent was not accepted.
		if at < concurrentMax && !errors.As(result.Err, &unknown) || at == count-1 && !errors.As(result.Err, &unavailable) {
			t.Errorf("%d: %+v", at, result)
		}
	}
}

func TestACommitWhoseVerdictIsForgottenIsUnknownAndNotAMistake(t *testing.T) {
	for _, code := range forgotten {
		service := startEndpoint(t, func(kind string, _ []string, _ int) (int, string) {
			if kind == "batch" {
				return 200, `{"results":[` + problemLine("txn", 422, code) + "]}"
			}
			return 422, troubleText(422, code)
		})
		client := clientOf(t, Options{}, service.url)
		_, err := client.Commit(t.Context(), preparedPut(t, client, 1))
		for _, err := range []error{err, batchOf(t, client, 1)[0].Err} {
			var unknown *OutcomeUnknown
			if !errors.As(err, &unknown) || !strings.Contains(err.Error(), code) {
				t.Errorf("%s: %v", code, err)
			}
		}
	}
}

func TestAScanIsNeverOlderThanTheSnapshot(t *testing.T) {
	row := func(key string) string { return fmt.Sprintf(`{"key":%q,"value":1,"version":"8388608"}`, key) }
	page := func(applied int, rows string, more bool) (int, string) {
		return 200, fmt.Sprintf(`{"applied":"%d","ranges":[{"store":"kv","rows":[%s],"more":%t}]}`, applied, rows, more)
	}
	service := newScripted(t, func(kind string, before int) (int, string) {
		switch {
		case kind == "begin":
			return begunReply(before, 7)
		case before == 0, before == 2:
			// A node that lags.
			return page(6, "", false)
		case before == 1:
			return page(7, row("a"), true)
		}
		return page(8, row("b"), false)
	}, httptest.NewServer)
	txn, err := service.client(t, Options{}).Begin(t.Context(), BeginOptions{Stores: []string{"kv"}})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := txn.Scan(t.Context(), "kv", "", "", 10)
	if err != nil || len(rows) != 2 {
		t.Error(rows, err)
	}
	asked := service.arrived["rows"]
	if len(asked) != 4 || slices.ContainsFunc(asked, func(one arrived) bool { return one.Session != "s" }) {
		t.Error(asked)
	}
}

func TestAVerdictThatWasAskedForCountsAsOwnCommit(t *testing.T) {
	service := newScripted(t, func(kind string, before int) (int, string) {
		switch kind {
		case "begin":
			return begunReply(before, 7)
		case "status":
			return committedReply(9)
		}
		return committedReply(12)
	}, httptest.NewServer)
	client := service.client(t, Options{})
	if _, err := client.Status(t.Context(), "a", false, 0); err != nil {
		t.Fatal(err)
	}
	checkSession(t, service, client, "token-9")
	if _, err := client.Abort(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	checkSession(t, service, client, "token-12")
}

// checkSession begins a transaction, and checks the token of the request.
func checkSession(t *testing.T, service *scripted, client *Client, token string) {
	t.Helper()
	if _, err := client.Begin(t.Context(), BeginOptions{Stores: []string{"kv"}}); err != nil {
		t.Fatal(err)
	}
	begins := service.arrived["begin"]
	if asked := begins[len(begins)-1].Session; asked != token {
		t.Errorf("session %q, not %q", asked, token)
	}
}
