package tribunal

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"tribunal.internal/client/wire"
)

// script returns the status and body of a response; before counts the earlier requests of the kind.
type script func(kind string, before int) (int, string)

// scripted is a service that replies by a script, for behavior that a live server does not show on demand.
type scripted struct {
	*httptest.Server
	mutex   sync.Mutex
	arrived map[string][]arrived
}

type arrived struct {
	Session        string         `json:"session"`
	Consistency    string         `json:"consistency"`
	WaitMs         int32          `json:"wait_ms"`
	FirstAttemptMs string         `json:"first_attempt_ms"`
	Read           []wire.RowRead `json:"read"`
	traceparent    string
}

// requests counts the requests of all kinds.
func (s *scripted) requests() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	count := 0
	for _, kind := range s.arrived {
		count += len(kind)
	}
	return count
}

func newScripted(t *testing.T, reply script, start func(http.Handler) *httptest.Server) *scripted {
	t.Helper()
	service := &scripted{arrived: map[string][]arrived{}}
	service.Server = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := "other"
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/v1/txns":
			kind = "begin"
		case strings.HasSuffix(r.URL.Path, "/batch-commit"):
			kind = "batch"
		case strings.HasSuffix(r.URL.Path, "/commit"):
			kind = "commit"
		case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/v1/txns/"):
			kind = "status"
		case strings.HasSuffix(r.URL.Path, "/rows/read"):
			kind = "rows"
		}
		request := arrived{traceparent: r.Header.Get("Traceparent")}
		_ = json.NewDecoder(r.Body).Decode(&request)
		service.mutex.Lock()
		before := len(service.arrived[kind])
		service.arrived[kind] = append(service.arrived[kind], request)
		service.mutex.Unlock()
		status, body := reply(kind, before)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Traceparent", "00-server")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(service.Close)
	return service
}

func (s *scripted) client(t *testing.T, options Options) *Client {
	t.Helper()
	client, err := New(s.URL, options)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func begunReply(number, snapshot int) (int, string) {
	return 201, fmt.Sprintf(`{"txn_id":"019%d163d-8694-7000-8000-000000000000","snapshots":{"kv":"%d"},"epoch":"8","expires_at":"2026-01-01T00:00:00Z","session":"s"}`, number, snapshot)
}

func committedReply(epoch int) (int, string) {
	return 200, fmt.Sprintf(`{"status":"committed","txn_id":"txn","epoch":"%d","version":"1","lsn":{"kv":"3"},"session":"token-%d"}`, epoch, epoch)
}

func abortedReply(reason string) (int, string) {
	return 200, `{"status":"aborted","txn_id":"txn","epoch":"9","retryable":true,"reason":"` + reason + `",
		"conflicts":[{"store":"kv","key":"a","op":"write","stage": "join"}]}`
}

func overloadedReply() (int, string) {
	return 503, `{"type":"about:blank","title":"x","status":503,"detail":"too busy","code":"overloaded","retryable":true,"errors":[]}`
}

func rowReply() (int, string) {
	return 200, `{"applied":"9","rows":[{"store":"kv","key":"a","value":1,"version":"5"}]}`
}

func TestAnAttemptOfEachKindIsReportedAndAReadIsRetriedInPlace(t *testing.T) {
	service := newScripted(t, func(kind string, before int) (int, string) {
		switch {
		case before == 0 && kind != "commit":
			return overloadedReply()
		case kind == "begin":
			return begunReply(before, 7)
		case kind == "rows":
			return rowReply()
		case before == 0:
			return abortedReply("read_conflict")
		}
		return committedReply(9)
	}, httptest.NewServer)
	var attempts []string
	client := service.client(t, Options{OnAttempt: func(at Attempt) {
		attempts = append(attempts, fmt.Sprintf("%d %T %v", at.Number, at.Verdict, at.Last))
	}})
	_, err := client.Run(context.Background(), BeginOptions{}, func(ctx context.Context, txn *Transaction) error {
		row, err := txn.Get(ctx, "kv", "a")
		if err != nil {
			return err
		}
		txn.Put("kv", "a", row.Value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	expected := []string{"1 <nil> false", "2 *tribunal.Aborted false", "3 *tribunal.Committed true"}
	if !reflect.DeepEqual(attempts, expected) || len(service.arrived["rows"]) != 3 {
		t.Fatalf("%q, %d reads", attempts, len(service.arrived["rows"]))
	}
	commits := service.arrived["commit"]
	if commits[0].FirstAttemptMs != "" || commits[1].FirstAttemptMs != "1722655016596" {
		t.Fatalf("first attempts %q, %q", commits[0].FirstAttemptMs, commits[1].FirstAttemptMs)
	}
}

func TestARefusedInsertGetsOneFreshRead(t *testing.T) {
	service := newScripted(t, func(kind string, before int) (int, string) {
		switch kind {
		case "begin":
			// The snapshots of the first two attempts do not include the epoch of the refusal.
			return begunReply(before, 8+before/2)
		case "rows":
			return rowReply()
		}
		return abortedReply("row_exists")
	}, httptest.NewServer)
	_, err := service.client(t, Options{}).Run(context.Background(), BeginOptions{}, func(ctx context.Context, txn *Transaction) error {
		if _, err := txn.Get(ctx, "kv", "b"); err != nil {
			return err
		}
		txn.Insert("kv", "a", 1)
		return nil
	})
	var aborted *TransactionAborted
	if !errors.As(err, &aborted) || len(service.arrived["commit"]) != 3 {
		t.Fatalf("%v after %d commits", err, len(service.arrived["commit"]))
	}
}

// Like a move between two index entries that other moves of the same document overtake.
func TestARowThatIsMissingBecauseOfAFurtherCommitDoesNotEndTheRetries(t *testing.T) {
	service := newScripted(t, func(kind string, before int) (int, string) {
		switch {
		case kind == "begin":
			return begunReply(before, 9+before)
		case kind == "rows":
			return 200, fmt.Sprintf(`{"applied":"9","rows":[{"store":"kv","key":"a","value":%d,"version":"%d"}]}`, before%2, 5+before)
		case before < 3:
			return abortedReply("row_missing")
		}
		return committedReply(20)
	}, httptest.NewServer)
	_, err := service.client(t, Options{}).Run(t.Context(), BeginOptions{}, func(ctx context.Context, txn *Transaction) error {
		row, err := txn.Get(ctx, "kv", "a")
		if err != nil {
			return err
		}
		txn.Delete("kv", "index/"+string(row.Value))
		return nil
	})
	if err != nil || len(service.arrived["commit"]) != 4 {
		t.Error(err, len(service.arrived["commit"]))
	}
}

func TestOwnCommitsAreVisibleToLaterTransactionsOfTheirStores(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		service := newScripted(t, func(kind string, before int) (int, string) {
			if kind == "begin" {
				return begunReply(before, 7)
			}
			return committedReply(9 - before)
		}, httptest.NewServer)
		ctx, client := context.Background(), service.client(t, Options{IgnoreOwnWrites: ignore})
		for range 2 {
			txn := client.BeginLocal(Serializable)
			txn.Put("kv", "a", 1)
			if _, err := txn.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for _, options := range []BeginOptions{{Stores: []string{"kv"}}, {Stores: []string{"other"}}, {Session: "given"}} {
			if _, err := client.Begin(ctx, options); err != nil {
				t.Fatal(err)
			}
		}
		expected := []arrived{{Session: "token-9"}, {}, {Session: "given"}}
		if ignore {
			expected[0].Session = ""
		}
		if !reflect.DeepEqual(service.arrived["begin"], expected) {
			t.Fatalf("ignore %v: %+v", ignore, service.arrived["begin"])
		}
	}
}

func TestATraceContextGoesWithTheCommitAndComesBackWithTheVerdict(t *testing.T) {
	service := newScripted(t, func(kind string, before int) (int, string) {
		if kind == "begin" {
			return begunReply(before, 7)
		}
		return committedReply(9)
	}, httptest.NewServer)
	options := BeginOptions{Traceparent: "00-mine"}
	committed, err := service.client(t, Options{}).Run(context.Background(), options, func(_ context.Context, txn *Transaction) error {
		txn.Put("kv", "a", 1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if sent := service.arrived["commit"][0].traceparent; sent != "00-mine" || committed.Traceparent != "00-server" {
		t.Fatalf("sent %q, received %q", sent, committed.Traceparent)
	}
}

func TestAnUntrustedCertificateIsFinalAndACAFileMakesItTrusted(t *testing.T) {
	service := newScripted(t, func(kind string, before int) (int, string) {
		if kind == "begin" {
			return begunReply(before, 7)
		}
		return committedReply(9)
	}, httptest.NewTLSServer)
	work := func(_ context.Context, txn *Transaction) error { txn.Put("kv", "a", 1); return nil }
	attempts := 0
	stranger := service.client(t, Options{OnAttempt: func(Attempt) { attempts++ }})
	_, err := stranger.Run(context.Background(), BeginOptions{}, work)
	var misuse *Misuse
	if !errors.As(err, &misuse) || !strings.Contains(err.Error(), "CAFile") || attempts != 1 {
		t.Fatalf("%v after %d attempts", err, attempts)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw})
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := service.client(t, Options{CAFile: file}).Run(context.Background(), BeginOptions{}, work); err != nil {
		t.Fatal(err)
	}
	if _, err := New(service.URL, Options{CAFile: file + ".missing"}); !errors.As(err, &misuse) {
		t.Fatal(err)
	}
}

func expiredReply() (int, string) {
	return 422, `{"type":"about:blank","title":"x","status":422,"detail":"too old","code":"txn_id_expired","retryable":false,"errors":[]}`
}

func putA(_ context.Context, txn *Transaction) error {
	txn.Put("kv", "a", 1)
	return nil
}

func TestAnOutageThatOutlastsTheIDOfATransactionDoesNotEndTheRetries(t *testing.T) {
	service := newScripted(t, func(kind string, before int) (int, string) {
		switch {
		case kind == "begin":
			return begunReply(before, 7)
		case before < 2:
			return overloadedReply()
		case before == 2:
			return expiredReply()
		}
		return committedReply(9)
	}, httptest.NewServer)
	var attempts []string
	client := service.client(t, Options{OnAttempt: func(at Attempt) {
		attempts = append(attempts, fmt.Sprintf("%d %T %T %v", at.Number, at.Verdict, at.Err, at.Last))
	}})
	if _, err := client.Run(t.Context(), BeginOptions{}, putA); err != nil {
		t.Fatal(err)
	}
	expected := []string{
		"1 <nil> *tribunal.Unavailable false", "2 <nil> *tribunal.Unavailable false", "3 <nil> *tribunal.ClientMistake false",
		"4 *tribunal.Committed <nil> true",
	}
	begins, commits := service.arrived["begin"], service.arrived["commit"]
	if !reflect.DeepEqual(attempts, expected) || len(begins) != 2 || len(commits) != 4 || commits[3].FirstAttemptMs == "" {
		t.Fatalf("%q, %d begins, %d commits", attempts, len(begins), len(commits))
	}
}

func TestWorkThatOutlastsTheIDOfItsTransactionIsNotRepeated(t *testing.T) {
	service := newScripted(t, func(kind string, before int) (int, string) {
		if kind == "begin" {
			return begunReply(before, 7)
		}
		return expiredReply()
	}, httptest.NewServer)
	_, err := service.client(t, Options{}).Run(t.Context(), BeginOptions{}, putA)
	var mistake *ClientMistake
	if !errors.As(err, &mistake) || mistake.Code() != expired || len(service.arrived["commit"]) != 1 {
		t.Fatalf("%v after %d commits", err, len(service.arrived["commit"]))
	}
}
