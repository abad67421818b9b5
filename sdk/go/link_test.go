package tribunal

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tribunal.internal/client/wire"
)

// scriptedStreams starts a service whose streams follow a script, which returns the answer to each line, given its
// number and id. An empty answer is none; one that ends with "!" ends the response. The answer to a status request is
// committed. A status other than 200 refuses the first stream.
func scriptedStreams(
	t *testing.T, version, status int, script func(stream, line int, id string) string,
) (*Client, *atomic.Int32) {
	t.Helper()
	lines, streams := new(atomic.Int32), new(atomic.Int32)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := strings.Split(r.URL.Path, "/")[3]; id != "stream" {
			_, _ = io.WriteString(w, wonLine(id))
			return
		}
		if r.ProtoMajor != version {
			t.Error(r.Proto)
		}
		stream := int(streams.Add(1))
		out := http.NewResponseController(w)
		_ = out.EnableFullDuplex()
		if stream == 1 && status != http.StatusOK {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, problemText(status, "refused"))
			return
		}
		_ = out.Flush()
		scanner := bufio.NewScanner(r.Body)
		for line := 1; scanner.Scan(); line++ {
			var txn wire.BatchTxn
			if err := json.Unmarshal(scanner.Bytes(), &txn); err != nil {
				t.Error(err)
			}
			lines.Add(1)
			answer, ends := strings.CutSuffix(script(stream, line, txn.TxnID), "!")
			if answer != "" {
				_, _ = io.WriteString(w, answer+"\n")
				_ = out.Flush()
			}
			if ends {
				return
			}
		}
	}))
	// Over HTTP/1.1 the server panics when it finds a body that a handler has not read.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	options := Options{}
	if version == 1 {
		server.Start()
	} else {
		server.EnableHTTP2 = true
		server.StartTLS()
		// Any other RoundTripper than an *http.Transport is used as it is, here over HTTP/2.
		options.HTTPClient = &http.Client{Transport: wrapped{server.Client().Transport}}
	}
	t.Cleanup(server.Close)
	client, err := New(server.URL, options)
	if err != nil {
		t.Fatal(err)
	}
	return client, lines
}

type wrapped struct{ http.RoundTripper }

func together(all *sync.WaitGroup, do func()) {
	all.Add(1)
	go func() {
		defer all.Done()
		do()
	}()
}

func endsOf(t *testing.T, stream *CommitStream, count int) map[string]int {
	t.Helper()
	var mutex sync.Mutex
	var all sync.WaitGroup
	ends := map[string]int{}
	for n := range count {
		together(&all, func() {
			end := endOf(stream.Commit(t.Context(), preparedPut(t, stream.client, n)))
			mutex.Lock()
			defer mutex.Unlock()
			ends[end]++
		})
	}
	all.Wait()
	return ends
}

func preparedPut(t *testing.T, client *Client, n int) *PreparedCommit {
	t.Helper()
	txn := client.BeginLocal("")
	txn.Put("kv", fmt.Sprint(n), n)
	prepared, err := txn.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	return prepared
}

func endOf(verdict Verdict, err error) string {
	var mistake *ClientMistake
	var unavailable *Unavailable
	switch {
	case errors.As(err, &mistake):
		return "mistake " + mistake.Problem.Code
	case errors.As(err, &unavailable):
		return "unavailable"
	case err != nil:
		return err.Error()
	}
	if won, ok := verdict.(*Committed); ok && won.Replayed {
		return "committed, replayed"
	}
	return "committed"
}

func TestEachStreamOfAClientHasAConnectionOfItsOwnOverTLS(t *testing.T) {
	const streams = 8
	var mutex sync.Mutex
	of := map[string]int{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := strings.Split(r.URL.Path, "/")[3]; id != "stream" {
			_, _ = io.WriteString(w, wonLine(id))
			return
		}
		mutex.Lock()
		of[r.RemoteAddr]++
		streams := of[r.RemoteAddr]
		mutex.Unlock()
		// Like the service.
		if streams > 3 {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, problemText(http.StatusTooManyRequests, "too_many_streams"))
			return
		}
		out := http.NewResponseController(w)
		_ = out.EnableFullDuplex()
		_ = out.Flush()
		for scanner := bufio.NewScanner(r.Body); scanner.Scan(); _ = out.Flush() {
			var txn wire.BatchTxn
			if err := json.Unmarshal(scanner.Bytes(), &txn); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, wonLine(txn.TxnID)+"\n")
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	used := server.Client()
	if reply, err := used.Get(server.URL + "/v1/txns/x"); err != nil || reply.ProtoMajor != 2 {
		t.Fatal(reply, err)
	} else {
		_ = reply.Body.Close()
	}
	for name, options := range map[string]Options{"CAFile": {CAFile: file}, "HTTPClient, used before": {HTTPClient: used}} {
		client, err := New(server.URL, options)
		if err != nil {
			t.Fatal(err)
		}
		for n := range streams {
			stream := client.CommitStream()
			defer stream.Close()
			if end := endOf(stream.Commit(t.Context(), preparedPut(t, client, n))); end != "committed" {
				t.Error(name, "stream", n+1, end)
			}
		}
		// Other requests share a connection as before.
		if _, err := client.Status(t.Context(), "x", false, 0); err != nil {
			t.Error(name, err)
		}
	}
	mutex.Lock()
	defer mutex.Unlock()
	if len(of) != 2*streams {
		t.Error(of)
	}
}

func TestWhatAStreamDidNotTakeInIsWrittenAgainAndTheRestIsResolved(t *testing.T) {
	for _, version := range []int{1, 2} {
		client, lines := scriptedStreams(t, version, http.StatusOK, func(stream, line int, id string) string {
			switch {
			case stream > 1:
				return wonLine(id)
			case line == 10:
				return `{"event":"end","reason":"stopping","lines":"4"}!`
			}
			return ""
		})
		stream := client.CommitStream()
		ends := endsOf(t, stream, 10)
		if ends["committed"] != 6 || ends["committed, replayed"] != 4 || lines.Load() != 16 {
			t.Error(version, ends, lines.Load())
		}
		stream.Close()
	}
}

func TestARefusedStreamAndStrangeLinesReachEachCommit(t *testing.T) {
	for at, one := range []struct {
		status   int
		answer   string
		expected string
	}{
		{403, "", "mistake refused"},
		{503, "", "unavailable"},
		// It does not determine the outcome of the commit.
		{502, "", "committed, replayed"},
		{200, "no JSON", "committed, replayed"},
		{200, "[1]", "committed, replayed"},
		{200, `{"event":"end","reason":"stopping","lines":"1"}`, "committed, replayed"},
		{200, "!", "committed, replayed"},
		{200, `{"status":"problem","problem":{"type":"about:blank","title":"x","detail":"x","status":400,"code":"bad_txn_id","retryable":false,"line":1}}`, "mistake bad_txn_id"},
		{200, "504", "committed, replayed"},
	} {
		client, _ := scriptedStreams(t, 1+at%2, one.status, func(stream, line int, id string) string {
			switch {
			case stream > 1 || line > 1:
				return wonLine(id)
			case one.answer == "504":
				return problemLine(id, 504, "outcome_unknown")
			}
			return one.answer
		})
		stream := client.CommitStream()
		if end := endOf(stream.Commit(t.Context(), preparedPut(t, client, 1))); end != one.expected {
			t.Error(one, end)
		}
		if end := endOf(stream.Commit(t.Context(), preparedPut(t, client, 2))); end != "committed" {
			t.Error(one, "the next commit:", end)
		}
		stream.Close()
	}
}

func TestTheWindowHoldsCommitsBackAndAnIDInFlightIsSentByItself(t *testing.T) {
	client, lines := scriptedStreams(t, 2, http.StatusOK, func(int, int, string) string { return "" })
	stream := client.CommitStream()
	defer stream.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reached := func(count int32) {
		for begun := time.Now(); lines.Load() < count; time.Sleep(time.Millisecond) {
			if time.Since(begun) > 30*time.Second {
				t.Fatal(lines.Load())
			}
		}
	}
	var all sync.WaitGroup
	first := preparedPut(t, client, 0)
	commit := func(prepared *PreparedCommit) { together(&all, func() { _, _ = stream.Commit(ctx, prepared) }) }
	commit(first)
	reached(1)
	if end := endOf(stream.Commit(t.Context(), first)); end != "committed" {
		t.Error(end)
	}
	for n := range 3000 {
		commit(preparedPut(t, client, n))
	}
	reached(streamCommitsMax)
	time.Sleep(200 * time.Millisecond)
	if lines.Load() != streamCommitsMax {
		t.Error(lines.Load())
	}
	cancel()
	all.Wait()
}

func TestLinesOfCallersThatGaveUpStayInTheWindow(t *testing.T) {
	client, lines := scriptedStreams(t, 2, http.StatusOK, func(int, int, string) string { return "" })
	stream := client.CommitStream()
	var all sync.WaitGroup
	for n := range 2000 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		prepared := preparedPut(t, client, n)
		together(&all, func() {
			defer cancel()
			_, _ = stream.Commit(ctx, prepared)
		})
		if n%500 == 499 {
			all.Wait()
		}
	}
	stream.window.mutex.Lock()
	commits := stream.window.commits
	stream.window.mutex.Unlock()
	stream.link.mutex.Lock()
	waiting := len(stream.link.waiting)
	stream.link.mutex.Unlock()
	if commits != waiting || commits > streamCommitsMax || lines.Load() > streamCommitsMax {
		t.Error(commits, waiting, lines.Load())
	}
	// The end of the link makes room.
	stream.link.giveUp()
	for end := time.Now().Add(30 * time.Second); commits > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		stream.window.mutex.Lock()
		commits = stream.window.commits
		stream.window.mutex.Unlock()
	}
	if commits != 0 {
		t.Error(commits)
	}
}

func TestALongCommitAndAnIDInUpperCaseDoNotDisturbTheStream(t *testing.T) {
	client, lines := scriptedStreams(t, 2, http.StatusOK, func(_, _ int, id string) string { return wonLine(strings.ToLower(id)) })
	stream := client.CommitStream()
	defer stream.Close()
	txn := client.BeginLocal("")
	txn.Put("kv", "a", strings.Repeat("x", streamLineBytesMax))
	long, err := txn.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	if end := endOf(stream.Commit(t.Context(), long)); end != "committed" || lines.Load() != 0 {
		t.Error(end, lines.Load())
	}
	upper := preparedPut(t, client, 1)
	upper.TxnID = strings.ToUpper(upper.TxnID)
	if end := endOf(stream.Commit(t.Context(), upper)); end != "committed" || lines.Load() != 1 {
		t.Error(end, lines.Load())
	}
}

func TestOnlyLinesThatTheConnectionTookMayBeTakenIn(t *testing.T) {
	l := &link{waiting: map[string]waitingLine{}}
	l.changed = sync.NewCond(&l.mutex)
	first, _ := l.write("a", []byte("first\n"))
	second, _ := l.write("b", []byte("second\n"))
	if read, err := l.Read(make([]byte, 6)); read != 6 || err != nil {
		t.Fatal(read, err)
	}
	l.end(lostLink(errors.New("lost")))
	if end := <-first; end.notTaken != nil {
		t.Error("the first line was sent")
	}
	if end := <-second; end.notTaken == nil {
		t.Error("the second line was not sent")
	}
}

func TestAWindowIsEnteredInOrderAndLeftByThoseWhoGiveUp(t *testing.T) {
	w := window{commitsMax: 2, bytesMax: 10}
	enter := func(bytes int) error { return w.enter(t.Context(), bytes) }
	waits := func(bytes int) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		return w.enter(ctx, bytes) != nil
	}
	if enter(100) != nil || !waits(1) {
		t.Fatal("a large one enters alone")
	}
	w.leave(100)
	if enter(4) != nil || !waits(7) || enter(6) != nil || !waits(0) {
		t.Fatal("two, and ten bytes")
	}
	w.leave(4)
	w.leave(6)
	if w.commits != 0 || w.bytes != 0 || len(w.queue) != 0 {
		t.Fatal(w.commits, w.bytes, len(w.queue))
	}
}

func TestAQuietStreamIsNotCutBeforeItsHeartbeatsAreDue(t *testing.T) {
	t.Parallel()
	client, lines := scriptedStreams(t, 1, http.StatusOK, func(_, _ int, id string) string { return wonLine(id) })
	client.options.Timeout = 100 * time.Millisecond
	stream := client.CommitStream()
	defer stream.Close()
	if end := endOf(stream.Commit(t.Context(), preparedPut(t, client, 0))); end != "committed" || lines.Load() != 1 {
		t.Fatal(end)
	}
	// The heartbeats of a log are more frequent.
	time.Sleep(client.options.Timeout + heartbeat + 500*time.Millisecond)
	stream.mutex.Lock()
	defer stream.mutex.Unlock()
	if stream.link.isOver() {
		t.Error("the service sends a heartbeat every 15 s")
	}
}

func TestACommitOfAStreamMayWaitForItsStores(t *testing.T) {
	const timeout = 300 * time.Millisecond
	answer := func(_, _ int, id string) string {
		time.Sleep(2 * timeout)
		return wonLine(id)
	}
	for _, count := range []int{1, 3} {
		client, lines := scriptedStreams(t, 1, http.StatusOK, answer)
		urls := client.endpoints.urls
		for range count - 1 {
			urls = append(urls, startEndpoint(t, works).url)
		}
		client = clientOf(t, Options{Timeout: timeout, EndpointTimeout: timeout / 3}, urls...)
		stream := client.CommitStream()
		prepared := preparedPut(t, client, 0)
		ack := AckApplied
		prepared.Request.Ack = &ack
		verdict, err := stream.Commit(t.Context(), prepared)
		if won, ok := verdict.(*Committed); !ok || won.Replayed || client.Endpoint() != urls[0] || lines.Load() != 1 {
			t.Errorf("%d endpoints: %v, %v, %d lines", count, verdict, err, lines.Load())
		}
		stream.Close()
	}
}
