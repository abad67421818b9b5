package tribunal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// An endpoint's reactions to a request other than a response: it breaks the connection, or stays silent.
const (
	isLost   = -1
	isSilent = -2
)

// endpointScript returns the status and body of a response, given the kind of a request, the ids in it, and how many
// requests came before.
type endpointScript func(kind string, ids []string, before int) (int, string)

// askedRequest is a request as it arrived.
type askedRequest struct{ path, body string }

// testEndpoint is an endpoint on a free port.
type testEndpoint struct {
	url   string
	mutex sync.Mutex
	all   []askedRequest
}

func (e *testEndpoint) asked() []askedRequest {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return slices.Clone(e.all)
}

func startEndpoint(t *testing.T, reply endpointScript) *testEndpoint {
	t.Helper()
	endpoint, stopped := &testEndpoint{}, make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := kindOfPath(r.URL.Path)
		var body []byte
		if kind == "stream" {
			// Up to its first line: its end arrives only after the replies.
			_ = http.NewResponseController(w).EnableFullDuplex()
			body, _ = bufio.NewReader(r.Body).ReadBytes('\n')
		} else {
			body, _ = io.ReadAll(r.Body)
		}
		endpoint.mutex.Lock()
		before := len(endpoint.all)
		endpoint.all = append(endpoint.all, askedRequest{r.URL.String(), string(body)})
		endpoint.mutex.Unlock()
		status, text := reply(kind, idsOf(r.URL.Path, string(body)), before)
		switch status {
		case isSilent:
			<-stopped
		case isLost:
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
		}
		if kind == "stream" && text != "" {
			_ = http.NewResponseController(w).Flush()
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}))
	// Over HTTP/1.1 the server panics when it finds a body that a handler has not read.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	endpoint.url = server.URL
	t.Cleanup(func() {
		close(stopped)
		server.CloseClientConnections()
		server.Close()
	})
	return endpoint
}

func kindOfPath(path string) string {
	switch {
	case path == "/v1/txns":
		return "begin"
	case path == "/v1/txns/stream":
		return "stream"
	case strings.HasSuffix(path, "/batch-commit"):
		return "batch"
	case strings.HasSuffix(path, "/commit"):
		return "commit"
	case strings.HasPrefix(path, "/v1/txns/"):
		return "status"
	}
	return "other"
}

func idsOf(path, body string) []string {
	if kind := kindOfPath(path); kind != "batch" && kind != "stream" {
		parts := strings.Split(path, "/")
		return parts[min(3, len(parts)-1):]
	}
	ids := []string{}
	for line := range strings.Lines(body) {
		var commit struct {
			TxnID string `json:"txn_id"`
		}
		_ = json.Unmarshal([]byte(line), &commit)
		ids = append(ids, commit.TxnID)
	}
	return ids
}

func committedLine(id string) string {
	return fmt.Sprintf(`{"status":"committed","txn_id":%q,"epoch":"9","csn":"7","version":"5","lsn":{"kv":"3"},"session":"s"}`, id) + "\n"
}

func troubleText(status int, code string) string {
	return fmt.Sprintf(`{"type":"about:blank","title":"x","status":%d,"detail":"says so","code":%q,"retryable":%t,"errors":[]}`,
		status, code, status >= 500)
}

func refuses(status int, code string) endpointScript {
	return func(string, []string, int) (int, string) { return status, troubleText(status, code) }
}

func fails(how int) endpointScript {
	return func(string, []string, int) (int, string) { return how, "" }
}

func works(kind string, ids []string, _ int) (int, string) {
	switch kind {
	case "begin":
		return begunReply(0, 7)
	case "commit", "status":
		return 200, committedLine(ids[0])
	case "batch", "stream":
		lines := ""
		for _, id := range ids {
			lines += committedLine(id)
		}
		return 200, lines
	}
	return 200, `{"stores":[]}`
}

// deadEndpoint returns the URL of an endpoint without a listener. A closed port of 127.0.0.1 may be reused by the next
// server.
func deadEndpoint(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return "http://" + listener.Addr().String()
}

// clientOf returns a client whose times suit a busy machine: the expected events do not wait for them to elapse.
func clientOf(t *testing.T, options Options, urls ...string) *Client {
	t.Helper()
	if options.Timeout == 0 {
		options.Timeout = time.Minute
	}
	if options.EndpointTimeout == 0 {
		options.EndpointTimeout = 30 * time.Second
	}
	if options.ResolveTimeout == 0 {
		options.ResolveTimeout = time.Minute
	}
	options.Retry.AttemptsMax = 4
	client, err := NewWithEndpoints(urls, options)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func preparedOf(t *testing.T, client *Client) *PreparedCommit {
	t.Helper()
	txn := client.BeginLocal(Serializable)
	txn.Add("kv", "n", 1)
	prepared, err := txn.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	return prepared
}

func checkCommitted(t *testing.T, prepared *PreparedCommit, verdict Verdict, err error) {
	t.Helper()
	if committed, ok := verdict.(*Committed); err != nil || !ok || committed.TxnID != prepared.TxnID {
		t.Fatal(verdict, err)
	}
}

func checkCommits(t *testing.T, client *Client) {
	t.Helper()
	prepared := preparedOf(t, client)
	verdict, err := client.Commit(context.Background(), prepared)
	checkCommitted(t, prepared, verdict, err)
}

func TestADeadEndpointIsPassedOverAndTheNextOneStaysInUse(t *testing.T) {
	first, second := deadEndpoint(t), startEndpoint(t, works)
	// As in the environment variable TRIBUNAL_URL.
	client, err := New(first+", "+second.url+"/", Options{})
	if err != nil || client.Endpoint() != first {
		t.Fatal(client.Endpoint(), err)
	}
	if _, err := client.Begin(context.Background(), BeginOptions{Stores: []string{"kv"}}); err != nil {
		t.Fatal(err)
	}
	checkCommits(t, client)
	if client.Endpoint() != second.url || len(second.asked()) != 2 {
		t.Error(client.Endpoint(), second.asked())
	}
}

func TestAnUnavailableEndpointIsLeftUntilItsCoolDownHasPassed(t *testing.T) {
	first := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
		if before == 0 {
			return 503, troubleText(503, "stopping")
		}
		return works(kind, ids, before)
	})
	// The second endpoint fails at its third request.
	second := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
		if before < 2 {
			return works(kind, ids, before)
		}
		return 503, troubleText(503, "unavailable")
	})
	third := startEndpoint(t, works)
	client := clientOf(t, Options{EndpointCoolDown: time.Hour}, first.url, second.url, third.url)
	check := func(expected ...int) {
		t.Helper()
		if _, err := client.Stores(context.Background()); err != nil {
			t.Fatal(err)
		}
		if counts := []int{len(first.asked()), len(second.asked()), len(third.asked())}; !slices.Equal(counts, expected) {
			t.Error(counts, expected)
		}
	}
	check(1, 1, 0)
	check(1, 2, 0)
	// The first one failed recently.
	check(1, 3, 1)
}

func TestTheEndpointInUseStaysSoWhenAnEarlierOneMayBeTriedAgain(t *testing.T) {
	first := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
		if before == 0 {
			return 503, troubleText(503, "stopping")
		}
		return works(kind, ids, before)
	})
	second := startEndpoint(t, works)
	client := clientOf(t, Options{EndpointCoolDown: 50 * time.Millisecond}, first.url, second.url)
	for range 2 {
		if _, err := client.Stores(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Millisecond)
	}
	if len(first.asked()) != 1 || len(second.asked()) != 2 || client.Endpoint() != second.url {
		t.Error(first.asked(), second.asked(), client.Endpoint())
	}
}

func TestAFailedEndpointIsTriedAgainAfterItsCoolDown(t *testing.T) {
	first := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
		if before == 0 {
			return 504, ""
		}
		return works(kind, ids, before)
	})
	second := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
		if before == 1 {
			return 503, troubleText(503, "unavailable")
		}
		return works(kind, ids, before)
	})
	client := clientOf(t, Options{EndpointCoolDown: 50 * time.Millisecond}, first.url, second.url)
	for range 2 {
		if _, err := client.Stores(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Millisecond)
	}
	if len(first.asked()) != 2 || len(second.asked()) != 2 {
		t.Error(first.asked(), second.asked())
	}
}

func TestACommitWithoutAReplyIsSentElsewhereWithTheSameIDAndBody(t *testing.T) {
	for name, lost := range map[string]endpointScript{
		"lost": fails(isLost), "silent": fails(isSilent), "unknown": refuses(504, "outcome_unknown"),
	} {
		t.Run(name, func(t *testing.T) {
			first, second := startEndpoint(t, lost), startEndpoint(t, works)
			client := clientOf(t, Options{EndpointTimeout: 2 * time.Second}, first.url, second.url)
			checkCommits(t, client)
			// The same request, and no status request.
			if len(first.asked()) != 1 || !reflect.DeepEqual(first.asked(), second.asked()) || client.Endpoint() != second.url {
				t.Error(first.asked(), second.asked(), client.Endpoint())
			}
		})
	}
}

func TestARefusalAfterALostReplyDoesNotTellTheOutcome(t *testing.T) {
	for _, lost := range []endpointScript{fails(isLost), refuses(504, "outcome_unknown")} {
		first := startEndpoint(t, lost)
		second := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
			if kind == "commit" {
				return 429, troubleText(429, "quota_exceeded")
			}
			return works(kind, ids, before)
		})
		checkCommits(t, clientOf(t, Options{}, first.url, second.url))
		if asked := second.asked(); len(asked) != 2 || !strings.Contains(asked[1].path, "fence=true") {
			t.Error("the verdict is requested", asked)
		}
	}
}

func TestDefiniteAnswersAreNotRepeatedElsewhere(t *testing.T) {
	for code, status := range map[string]int{"bad_write": 422, "quota_exceeded": 429, "overloaded": 503, "unauthenticated": 401} {
		first, second := startEndpoint(t, refuses(status, code)), startEndpoint(t, works)
		client := clientOf(t, Options{}, first.url, second.url)
		if _, err := client.Commit(context.Background(), preparedOf(t, client)); err == nil || !strings.Contains(err.Error(), code) {
			t.Error(err)
		}
		if len(first.asked()) != 1 || len(second.asked()) != 0 || client.Endpoint() != first.url {
			t.Error(code, first.asked(), second.asked())
		}
	}
	first := startEndpoint(t, func(string, []string, int) (int, string) { return abortedReply("write_conflict") })
	second := startEndpoint(t, works)
	client := clientOf(t, Options{}, first.url, second.url)
	if verdict, err := client.Commit(context.Background(), preparedOf(t, client)); err != nil || len(second.asked()) != 0 {
		t.Error(verdict, err, second.asked())
	}
}

func TestTheErrorAfterAllHaveFailedNamesEachEndpointAndItsReason(t *testing.T) {
	first, second := deadEndpoint(t), startEndpoint(t, refuses(503, "no_majority"))
	third := startEndpoint(t, func(string, []string, int) (int, string) { return 503, "a proxy" })
	client := clientOf(t, Options{}, first, second.url, third.url)
	_, err := client.Begin(context.Background(), BeginOptions{})
	var unavailable *Unavailable
	if !errors.As(err, &unavailable) || unavailable.Problem.Code != "no_majority" {
		t.Fatal(err)
	}
	for _, part := range []string{first, second.url, third.url, "refused", "no_majority: says so", "status 503"} {
		if !strings.Contains(err.Error(), part) {
			t.Error(part, "is missing:", err)
		}
	}
	if len(second.asked()) != 2 || len(third.asked()) != 2 {
		t.Error("each is tried twice", second.asked(), third.asked())
	}
	refusing := clientOf(t, Options{}, first, second.url)
	if _, err := refusing.Commit(context.Background(), preparedOf(t, client)); !errors.As(err, &unavailable) {
		t.Error("nothing was taken", err)
	}
	var unknown *OutcomeUnknown
	if _, err := client.Commit(context.Background(), preparedOf(t, client)); !errors.As(err, &unknown) {
		t.Error("the proxy may have passed it on", err)
	}
}

func TestWhatIsNotTribunalIsPassedOver(t *testing.T) {
	for _, status := range []int{301, 404, 500} {
		first := startEndpoint(t, func(string, []string, int) (int, string) { return status, "a proxy" })
		second := startEndpoint(t, works)
		client := clientOf(t, Options{}, first.url, second.url)
		checkCommits(t, client)
		if !reflect.DeepEqual(first.asked(), second.asked()) || client.Endpoint() != second.url {
			t.Error(status, first.asked(), second.asked())
		}
	}
}

func TestARefusalForTheSizeOfARequestIsNotRepeatedElsewhere(t *testing.T) {
	first := startEndpoint(t, func(string, []string, int) (int, string) { return 413, "a proxy" })
	second := startEndpoint(t, works)
	var misbehaved *ServerMisbehaved
	_, err := clientOf(t, Options{}, first.url, second.url).Begin(context.Background(), BeginOptions{})
	if !errors.As(err, &misbehaved) || len(second.asked()) != 0 {
		t.Error(err, second.asked())
	}
}

func TestAnAnswerThatIsNotOfTribunalNamesItsEndpoint(t *testing.T) {
	only := startEndpoint(t, func(string, []string, int) (int, string) { return 404, "a proxy" })
	_, err := clientOf(t, Options{}, only.url).Begin(context.Background(), BeginOptions{})
	if err == nil || !strings.Contains(err.Error(), only.url+": status 404 without a problem document") {
		t.Error(err)
	}
}

func TestTheTimeoutIsSharedByTheEndpoints(t *testing.T) {
	first, second := startEndpoint(t, fails(isSilent)), startEndpoint(t, fails(isSilent))
	begun := time.Now()
	client := clientOf(t, Options{Timeout: 4 * time.Second}, first.url, second.url)
	_, err := client.Begin(context.Background(), BeginOptions{})
	if err == nil || time.Since(begun) < 3990*time.Millisecond || len(first.asked()) != 1 || len(second.asked()) != 1 {
		t.Error(err, time.Since(begun), first.asked(), second.asked())
	}
}

func TestACallerThatGivesUpFailsNoEndpoint(t *testing.T) {
	first, second := startEndpoint(t, fails(isSilent)), startEndpoint(t, works)
	client := clientOf(t, Options{NoCoalesce: true}, first.url, second.url)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.Begin(ctx, BeginOptions{}); err == nil || client.Endpoint() != first.url || len(second.asked()) != 0 {
		t.Error(err, client.Endpoint(), second.asked())
	}
}

func TestCommitsOfABatchWithoutAnOutcomeAreSentElsewhere(t *testing.T) {
	// In a batch, the first commit is decided, the second was not accepted, and the third one's outcome is unknown.
	first := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
		line := func(status int, code string) string {
			return `{"status":"problem","problem":` + troubleText(status, code) + "}\n"
		}
		return 200, committedLine(ids[0]) + line(503, "unavailable") + line(504, "outcome_unknown")
	})
	second := startEndpoint(t, works)
	client := clientOf(t, Options{}, first.url, second.url)
	items := make([]commitItem, 3)
	for at := range items {
		items[at], _ = newCommitItem(preparedOf(t, client))
	}
	for at, answer := range client.sendBatch(items) {
		verdict, err := verdict(answer)
		checkCommitted(t, items[at].prepared, verdict, err)
	}
	sent := strings.SplitAfter(first.asked()[0].body, "\n")
	if asked := second.asked(); len(asked) != 1 || asked[0].body != sent[1]+sent[2] {
		t.Error("the same lines", asked, sent)
	}
}

func TestCommitsOfAnExplicitBatchAreSentElsewhere(t *testing.T) {
	first := startEndpoint(t, func(_ string, _ []string, before int) (int, string) {
		if before == 0 {
			return 200, `{"results":[{"status":"problem","problem":` + troubleText(504, "outcome_unknown") + `}]}`
		}
		return 503, troubleText(503, "stopping")
	})
	second := startEndpoint(t, works)
	client := clientOf(t, Options{}, first.url, second.url)
	prepared := preparedOf(t, client)
	results, err := client.Batch(context.Background(), []*PreparedCommit{prepared})
	if err != nil {
		t.Fatal(err)
	}
	checkCommitted(t, prepared, results[0].Verdict, results[0].Err)
	if asked := second.asked(); asked[0].path != "/v1/txns/"+prepared.TxnID+"/commit" {
		t.Error(asked)
	}
}

func TestAStreamOfCommitsContinuesAtTheNextEndpoint(t *testing.T) {
	notTaken := func(_ string, ids []string, _ int) (int, string) {
		return 200, `{"status":"problem","txn_id":"` + ids[0] + `","problem":` + troubleText(503, "unavailable") + "}\n"
	}
	for name, lost := range map[string]endpointScript{
		"lost": fails(isLost), "silent": fails(isSilent), "refused": refuses(503, "stopping"), "over": fails(200), "not taken": notTaken,
	} {
		t.Run(name, func(t *testing.T) {
			first, second := startEndpoint(t, lost), startEndpoint(t, works)
			client := clientOf(t, Options{EndpointTimeout: 2 * time.Second}, first.url, deadEndpoint(t), second.url)
			stream := client.CommitStream()
			defer stream.Close()
			prepared := preparedOf(t, client)
			verdict, err := stream.Commit(context.Background(), prepared)
			checkCommitted(t, prepared, verdict, err)
			if len(first.asked()) != 1 || !reflect.DeepEqual(first.asked(), second.asked()) {
				t.Error("the same line", first.asked(), second.asked())
			}
		})
	}
}

// recordLine returns a line of a log stream.
func recordLine(lsn int) string {
	return fmt.Sprintf(`{"store":"kv","lsn":"%d","prev_lsn":"%d","epoch":"9","csn":"1","version":"5","txn_id":"x","writes":[]}`+"\n", lsn, lsn-1)
}

func TestALogReaderAtItsQuotaStaysAtItsEndpoint(t *testing.T) {
	first := startEndpoint(t, func(_ string, _ []string, before int) (int, string) {
		if before > 0 {
			return 200, recordLine(2)
		}
		end := `{"event":"end","next":"1","reason":"quota_exceeded","problem":` + problemText(429, "quota_exceeded") + "}\n"
		return 200, recordLine(1) + end
	})
	second := startEndpoint(t, func(string, []string, int) (int, string) { return 200, recordLine(2) })
	client := clientOf(t, Options{}, first.url, second.url)
	reader := client.Log("kv", LogOptions{})
	defer reader.Close()
	for lsn := LSN(1); lsn <= 2; lsn++ {
		if found, err := reader.Next(context.Background()); err != nil || found.LSN != lsn {
			t.Fatal(found, err)
		}
	}
	if len(first.asked()) != 2 || len(second.asked()) != 0 || client.Endpoint() != first.url {
		t.Error(first.asked(), second.asked(), client.Endpoint())
	}
}

func TestALogReaderContinuesAtItsPositionOnAnotherEndpoint(t *testing.T) {
	first := startEndpoint(t, func(string, []string, int) (int, string) {
		return 200, recordLine(1) + recordLine(2) + `{"event":"end","reason":"stopping"}` + "\n"
	})
	second := startEndpoint(t, func(string, []string, int) (int, string) { return 200, recordLine(3) })
	client := clientOf(t, Options{}, first.url, second.url)
	reader := client.Log("kv", LogOptions{})
	defer reader.Close()
	for lsn := LSN(1); lsn <= 3; lsn++ {
		if found, err := reader.Next(context.Background()); err != nil || found.LSN != lsn {
			t.Fatal(found, err)
		}
	}
	if asked := second.asked(); len(first.asked()) != 1 || !strings.Contains(asked[0].path, "after=2") || client.Endpoint() != second.url {
		t.Error(first.asked(), asked, client.Endpoint())
	}
}

func TestANodeThatLagsIsAskedOnceAndRemainsInUse(t *testing.T) {
	first, second := startEndpoint(t, refuses(503, "store_lagging")), startEndpoint(t, works)
	client := clientOf(t, Options{}, first.url, second.url)
	if _, err := client.Begin(context.Background(), BeginOptions{Stores: []string{"kv"}}); err != nil {
		t.Fatal(err)
	}
	if len(first.asked()) != 1 || len(second.asked()) != 1 || client.Endpoint() != first.url {
		t.Error(first.asked(), second.asked(), client.Endpoint())
	}
}

func TestAnEndpointThatFailedForAnotherCallIsPassedOverUntilItsCoolDownHasPassed(t *testing.T) {
	endpoints, err := newEndpoints([]string{"http://a:1, http://b:2/", "http://c:3,http://a:1"}, time.Second, time.Hour)
	if err != nil || !slices.Equal(endpoints.urls, []string{"http://a:1", "http://b:2", "http://c:3"}) {
		t.Fatal(endpoints, err)
	}
	check := func(expected int) {
		t.Helper()
		if at := endpoints.current(); at != expected {
			t.Error(at, expected)
		}
	}
	// For example, a log reader that is still connected to the second one.
	endpoints.failed(1)
	check(0)
	endpoints.failed(0)
	check(2)
	endpoints.failedAt[1] = time.Now().Add(-2 * time.Hour)
	endpoints.failed(2)
	// Unlike the first one, the second one's cool-down has passed.
	check(1)
	// Of three failed endpoints, the first to answer is used.
	endpoints.failed(1)
	endpoints.works(0)
	check(0)
}

func TestAReadWaitsForTheClientsOwnCommits(t *testing.T) {
	first := startEndpoint(t, func(kind string, ids []string, before int) (int, string) {
		if before == 0 {
			return works(kind, ids, before)
		}
		return 503, problemText(503, "stopping")
	})
	// The commit belongs to epoch 9.
	second := startEndpoint(t, func(_ string, _ []string, before int) (int, string) {
		return 200, fmt.Sprintf(`{"applied":"%d","rows":[{"store":"kv","key":"n","value":1,"version":"5"}]}`, 8+before)
	})
	client := clientOf(t, Options{}, first.url, second.url)
	prepared := preparedOf(t, client)
	verdict, err := client.Commit(context.Background(), prepared)
	checkCommitted(t, prepared, verdict, err)
	reads, err := client.ReadRows(context.Background(), "kv", []RowRead{{Key: "n"}})
	if err != nil || reads.Applied != 9 || len(second.asked()) != 2 {
		t.Error(reads, err, second.asked())
	}
}

func TestURLsThatCannotBeUsedAreNamed(t *testing.T) {
	for _, urls := range [][]string{{"http://a:1,b:2"}, {"http://a:1", "ftp://b:2"}, {"http://a:1,"}, {}, {"http://a:1/v1/"}, {"http://a:1?b"}, {"http://a:1#b"}} {
		var misuse *Misuse
		if _, err := NewWithEndpoints(urls, Options{}); !errors.As(err, &misuse) {
			t.Error(urls, err)
		}
	}
}

func TestAnEndpointThatDoesNotAnswerIsLeftBeforeItsShareOfTheTimeoutIsOver(t *testing.T) {
	for _, kind := range []string{"begin", "commit", "stream"} {
		paused := startEndpoint(t, func(string, []string, int) (int, string) { return isSilent, "" })
		second, third := startEndpoint(t, works), startEndpoint(t, works)
		options := Options{Timeout: 90 * time.Second, EndpointTimeout: 2 * time.Second}
		client := clientOf(t, options, paused.url, second.url, third.url)
		for range 2 {
			begun := time.Now()
			var err error
			switch kind {
			case "begin":
				_, err = client.Begin(t.Context(), BeginOptions{Stores: []string{"kv"}})
			case "commit":
				_, err = client.Commit(t.Context(), preparedOf(t, client))
			default:
				stream := client.CommitStream()
				_, err = stream.Commit(t.Context(), preparedOf(t, client))
				stream.Close()
			}
			if err != nil || time.Since(begun) > 30*time.Second {
				t.Fatalf("%s: %v after %v", kind, err, time.Since(begun))
			}
		}
		if counts := []int{len(paused.asked()), len(second.asked()), len(third.asked())}; !slices.Equal(counts, []int{1, 2, 0}) {
			t.Errorf("%s: requests %v", kind, counts)
		}
	}
}

func TestTheLastEndpointHasTheTimeThatIsLeft(t *testing.T) {
	silent := func(string, []string, int) (int, string) { return isSilent, "" }
	first, second := startEndpoint(t, silent), startEndpoint(t, silent)
	options := Options{Timeout: 5 * time.Second, EndpointTimeout: 2 * time.Second}
	begun := time.Now()
	_, err := clientOf(t, options, first.url, second.url).Begin(t.Context(), BeginOptions{Stores: []string{"kv"}})
	if err == nil || time.Since(begun) < 4900*time.Millisecond || len(first.asked()) != 1 || len(second.asked()) != 1 {
		t.Fatalf("%v after %v, requests %d and %d", err, time.Since(begun), len(first.asked()), len(second.asked()))
	}
}

func TestAPageOfAProxyIsNoAnswer(t *testing.T) {
	for _, page := range [][2]string{{"text/html", "<html>Please log in</html>"}, {"text/plain", "Please log in"}, {"application/json", "<"}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", page[0])
			_, _ = w.Write([]byte(page[1]))
		}))
		t.Cleanup(server.Close)
		second := startEndpoint(t, works)
		client := clientOf(t, Options{}, server.URL, second.url)
		if _, err := client.Begin(t.Context(), BeginOptions{Stores: []string{"kv"}}); err != nil || client.Endpoint() != second.url {
			t.Fatalf("%s: %v at %s", page[0], err, client.Endpoint())
		}
		again := clientOf(t, Options{}, server.URL, second.url)
		if _, err := again.Commit(t.Context(), preparedOf(t, again)); err != nil {
			t.Fatalf("%s: %v", page[0], err)
		}
		var misbehaved *ServerMisbehaved
		_, err := clientOf(t, Options{}, server.URL).Begin(t.Context(), BeginOptions{Stores: []string{"kv"}})
		if !errors.As(err, &misbehaved) {
			t.Errorf("%s: %v", page[0], err)
		}
	}
}

func TestAConsumersOffsetThatMayHaveBeenTakenIsNotSentElsewhere(t *testing.T) {
	const info = `{"name":"view","log":"l","offsets":[]}`
	stores := func(string, []string, int) (int, string) { return 200, info }
	set := func(client *Client) error {
		_, err := client.SetOffset(t.Context(), "view", "kv", Offset{LSN: 1})
		return err
	}
	for name, lost := range map[string]endpointScript{
		"lost": fails(isLost), "unknown": refuses(504, "outcome_unknown"), "stopping": refuses(503, "stopping"),
		"proxy": func(string, []string, int) (int, string) { return 502, "a proxy" },
	} {
		first, second := startEndpoint(t, lost), startEndpoint(t, stores)
		client := clientOf(t, Options{}, first.url, second.url)
		var unavailable *Unavailable
		if err := set(client); !errors.As(err, &unavailable) {
			t.Fatalf("%s: %v", name, err)
		} else if name == "lost" && !strings.HasSuffix(err.Error(), "; the offset may have been set") {
			t.Fatal(err)
		}
		if len(first.asked()) != 1 || len(second.asked()) != 0 {
			t.Fatalf("%s: %d, %d requests", name, len(first.asked()), len(second.asked()))
		}
		if err := set(client); err != nil {
			t.Fatalf("%s, set again: %v", name, err)
		}
	}
	second := startEndpoint(t, stores)
	for _, first := range []string{deadEndpoint(t), startEndpoint(t, refuses(503, "unavailable")).url} {
		if err := set(clientOf(t, Options{}, first, second.url)); err != nil {
			t.Fatal(err)
		}
	}
}
