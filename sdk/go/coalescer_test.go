package tribunal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"tribunal.internal/client/wire"
)

// held is a commit request that waits for its answer.
type held struct {
	batch       bool
	traceparent string
	ids         []string
	answer      chan [2]any
}

func (h held) with(status int, lines ...string) {
	h.answer <- [2]any{status, strings.Join(lines, "\n")}
}

// holding starts a service that holds commit requests back until the test answers them. It answers a status request at
// once with committed.
func holding(t *testing.T) (url string, arrived chan held) {
	t.Helper()
	arrived = make(chan held, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := strings.Split(r.URL.Path, "/")[3]
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, wonLine(id))
			return
		}
		request := held{traceparent: r.Header.Get("Traceparent"), ids: []string{id}, answer: make(chan [2]any, 1)}
		if request.batch = id == "batch-commit"; request.batch {
			request.ids = nil
			for decoder := json.NewDecoder(r.Body); decoder.More(); {
				var txn wire.BatchTxn
				if err := decoder.Decode(&txn); err != nil {
					t.Error(err)
				}
				request.ids = append(request.ids, txn.TxnID)
			}
		}
		// The server only notices the end of a connection if it has read the body.
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- request
		select {
		case answer := <-request.answer:
			w.WriteHeader(answer[0].(int))
			_, _ = io.WriteString(w, answer[1].(string))
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL, arrived
}

func wonLine(id string) string {
	return fmt.Sprintf(`{"status":"committed","txn_id":"%s","epoch":"9","version":"1","lsn":{"kv":"3"},"session":"s"}`, id)
}

func lostLine(id string) string {
	return fmt.Sprintf(`{"status":"aborted","txn_id":"%s","epoch":"9","reason":"read_conflict","retryable":true,"conflicts":[]}`, id)
}

func problemText(status int, code string) string {
	retryable := status == 429 || status == 503
	return fmt.Sprintf(`{"type":"about:blank","title":"x","detail":"x","status":%d,"code":"%s","retryable":%v}`, status, code, retryable)
}

func problemLine(id string, status int, code string) string {
	return fmt.Sprintf(`{"status":"problem","txn_id":"%s","problem":%s}`, id, problemText(status, code))
}

// A crowd commits on a client with the maximum number of requests in flight.
type crowd struct {
	t       *testing.T
	client  *Client
	arrived chan held
	first   []held
	firsts  []chan string
}

func newCrowd(t *testing.T, options Options) *crowd {
	t.Helper()
	url, arrived := holding(t)
	client, err := New(url, options)
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{t: t, client: client, arrived: arrived}
	for range commitBounds.inFlight {
		c.firsts = append(c.firsts, c.commit(t.Context(), c.prepared(nil)))
		request := <-arrived
		if request.batch {
			t.Fatal("an idle client sends a commit at once, by itself")
		}
		c.first = append(c.first, request)
	}
	return c
}

// release answers the first requests.
func (c *crowd) release() {
	for at, request := range c.first {
		request.with(200, wonLine(request.ids[0]))
		c.ends([]chan string{c.firsts[at]}, "committed")
	}
}

func (c *crowd) prepared(change func(*Transaction)) *PreparedCommit {
	txn := c.client.BeginLocal("")
	txn.Put("kv", "a", 1)
	if change != nil {
		change(txn)
	}
	prepared, err := txn.Prepare()
	if err != nil {
		c.t.Fatal(err)
	}
	return prepared
}

// commit sends the outcome to the channel: the status of the commit, or the code of its error.
func (c *crowd) commit(ctx context.Context, prepared *PreparedCommit) chan string {
	end := make(chan string, 1)
	go func() {
		verdict, err := c.client.Commit(ctx, prepared)
		var mistake *ClientMistake
		var unavailable *Unavailable
		var unknown *OutcomeUnknown
		switch {
		case errors.As(err, &mistake):
			end <- "mistake " + mistake.Code()
		case errors.As(err, &unavailable) && unavailable.Problem != nil:
			end <- "unavailable " + unavailable.Problem.Code
		case errors.As(err, &unknown):
			end <- fmt.Sprintf("unknown %v", unknown.Err)
		case err != nil:
			end <- err.Error()
		default:
			if aborted, ok := verdict.(*Aborted); ok {
				end <- "aborted " + aborted.Reason
			} else if verdict.(*Committed).Replayed {
				end <- "committed again"
			} else {
				end <- "committed"
			}
		}
	}()
	return end
}

// queued commits one by one, and returns once all of them are queued.
func (c *crowd) queued(commits ...*PreparedCommit) []chan string {
	var ends []chan string
	for _, prepared := range commits {
		before := c.waiting()
		ends = append(ends, c.commit(c.t.Context(), prepared))
		for c.waiting() == before {
			time.Sleep(time.Millisecond)
		}
	}
	return ends
}

func (c *crowd) waiting() int {
	c.client.commits.mutex.Lock()
	defer c.client.commits.mutex.Unlock()
	count := 0
	for _, group := range c.client.commits.groups {
		count += len(group.queue)
	}
	return count
}

func (c *crowd) ends(ends []chan string, expected ...string) {
	c.t.Helper()
	for at, end := range ends {
		if found := <-end; found != expected[min(at, len(expected)-1)] {
			c.t.Errorf("commit %d: %s", at, found)
		}
	}
}

func (c *crowd) alone(request held, id string) {
	c.t.Helper()
	if request.batch || request.ids[0] != id {
		c.t.Fatalf("%+v", request)
	}
	request.with(200, wonLine(id))
}

func TestQueuedCommitsAreSentAsOneBatchAndEachGetsItsOwnVerdict(t *testing.T) {
	c := newCrowd(t, Options{})
	var commits []*PreparedCommit
	for range 6 {
		commits = append(commits, c.prepared(nil))
	}
	ends := c.queued(commits...)
	c.release()
	request := <-c.arrived
	for at, prepared := range commits {
		if !request.batch || len(request.ids) != 6 || request.ids[at] != prepared.TxnID {
			t.Fatalf("%+v", request)
		}
	}
	ids := request.ids
	// The service loses the reply to the third, which is resolved by its id.
	request.with(200, wonLine(ids[0]), lostLine(ids[1]), problemLine(ids[2], 504, "outcome_unknown"),
		problemLine(ids[3], 404, "unknown_store"), problemLine(ids[4], 429, "quota"),
		strings.Replace(wonLine(ids[5]), "{", `{"replayed":true,`, 1))
	c.ends(ends, "committed", "aborted read_conflict", "committed again", "mistake unknown_store", "unavailable quota",
		"committed again")
}

func TestABatchNeverContainsTheSameIDTwice(t *testing.T) {
	c := newCrowd(t, Options{})
	twice, other := c.prepared(nil), c.prepared(nil)
	ends := c.queued(twice, twice, other)
	c.release()
	// The second request is in flight at the same time, as without batches, and may arrive first.
	request, second := <-c.arrived, <-c.arrived
	if second.batch {
		request, second = second, request
	}
	if !reflect.DeepEqual(request.ids, []string{twice.TxnID, other.TxnID}) {
		t.Error(request.ids)
	}
	request.with(200, wonLine(twice.TxnID), wonLine(other.TxnID))
	c.alone(second, twice.TxnID)
	c.ends(ends, "committed")
}

func TestABatchHasAtMost512CommitsAnd4MiB(t *testing.T) {
	c := newCrowd(t, Options{})
	var commits []*PreparedCommit
	for range 5 {
		commits = append(commits, c.prepared(func(txn *Transaction) { txn.Put("kv", "a", strings.Repeat("x", 1<<20)) }))
	}
	for range 600 {
		commits = append(commits, c.prepared(nil))
	}
	ends := c.queued(commits...)
	c.release()
	var sizes []int
	for left := len(commits); left > 0; {
		request := <-c.arrived
		var lines []string
		for _, id := range request.ids {
			lines = append(lines, wonLine(id))
		}
		request.with(200, lines...)
		left -= len(request.ids)
		sizes = append(sizes, len(request.ids))
	}
	if slices.Max(sizes) != 512 || !slices.Contains(sizes, 3) {
		t.Error(sizes)
	}
	c.ends(ends, "committed")
}

func TestCommitsWithATraceContextOrAckAppliedAreSentAtOnceByThemselves(t *testing.T) {
	c := newCrowd(t, Options{})
	traced := c.prepared(func(txn *Transaction) { txn.Traceparent = "00-mine" })
	end := c.commit(t.Context(), traced)
	request := <-c.arrived
	if request.traceparent != "00-mine" {
		t.Error(request)
	}
	c.alone(request, traced.TxnID)
	c.ends([]chan string{end}, "committed")
	applied := c.prepared(func(txn *Transaction) { txn.Ack = AckApplied })
	end = c.commit(t.Context(), applied)
	c.alone(<-c.arrived, applied.TxnID)
	c.ends([]chan string{end}, "committed")
	c.release()
}

func TestARejectedBatchFailsEachOfItsCommits(t *testing.T) {
	c := newCrowd(t, Options{})
	ends := c.queued(c.prepared(nil), c.prepared(nil))
	c.release()
	(<-c.arrived).with(503, problemText(503, "overloaded"))
	c.ends(ends, "unavailable overloaded")
}

func TestARejectedBatchFormatSendsEachCommitByItself(t *testing.T) {
	c := newCrowd(t, Options{})
	ends := c.queued(c.prepared(nil), c.prepared(nil))
	c.release()
	(<-c.arrived).with(413, problemText(413, "too_large"))
	for range 2 {
		request := <-c.arrived
		c.alone(request, request.ids[0])
	}
	c.ends(ends, "committed")
}

func TestAnUnreadableReplyToABatchIsResolvedForEachCommit(t *testing.T) {
	for _, lines := range [][]string{{wonLine("one")}, {"{"}} {
		c := newCrowd(t, Options{})
		ends := c.queued(c.prepared(nil), c.prepared(nil))
		c.release()
		(<-c.arrived).with(200, lines...)
		c.ends(ends, "committed again")
	}
}

func TestACancelledCallerDoesNotAffectOthers(t *testing.T) {
	c := newCrowd(t, Options{})
	waits, cancelWaiting := context.WithCancel(t.Context())
	flies, cancelFlying := context.WithCancel(t.Context())
	goes, flown := c.prepared(nil), c.prepared(nil)
	gone := c.commit(waits, goes)
	for c.waiting() != 1 {
		time.Sleep(time.Millisecond)
	}
	cancelWaiting()
	// The commit was never sent, so its outcome is known.
	c.ends([]chan string{gone}, "context canceled")
	away := c.commit(flies, flown)
	for c.waiting() != 1 {
		time.Sleep(time.Millisecond)
	}
	ends := c.queued(c.prepared(nil), c.prepared(nil))
	c.release()
	request := <-c.arrived
	if len(request.ids) != 3 || slices.Contains(request.ids, goes.TxnID) {
		t.Fatal(request.ids)
	}
	cancelFlying()
	c.ends([]chan string{away}, "unknown context canceled")
	request.with(200, wonLine(request.ids[0]), wonLine(request.ids[1]), wonLine(request.ids[2]))
	c.ends(ends, "committed")
}

func TestWithoutCoalescingEveryCommitIsARequestOfItsOwn(t *testing.T) {
	c := newCrowd(t, Options{NoCoalesce: true})
	for range 3 {
		prepared := c.prepared(nil)
		end := c.commit(t.Context(), prepared)
		c.alone(<-c.arrived, prepared.TxnID)
		c.ends([]chan string{end}, "committed")
	}
	c.release()
}

func TestCommitsThatWriteNothingShareNoBatchWithThoseThatWrite(t *testing.T) {
	c := newCrowd(t, Options{})
	var reads []*PreparedCommit
	for range 3 {
		txn := c.client.BeginLocal("")
		txn.Observe("kv", "a", 0)
		prepared, err := txn.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		reads = append(reads, prepared)
	}
	// No request of their own kind is in flight.
	reading := c.commit(t.Context(), reads[0])
	request := <-c.arrived
	c.client.SetHeadStart(time.Hour)
	others := c.queued(reads[1], reads[2])
	writes := []*PreparedCommit{c.prepared(nil), c.prepared(nil)}
	writing := c.queued(writes...)
	c.alone(request, reads[0].TxnID)
	request = <-c.arrived
	if !slices.Equal(request.ids, []string{reads[1].TxnID, reads[2].TxnID}) {
		t.Error(request.ids)
	}
	request.with(200, wonLine(request.ids[0]), wonLine(request.ids[1]))
	c.ends(append(others, reading), "committed")
	c.release()
	request = <-c.arrived
	if !slices.Equal(request.ids, []string{writes[0].TxnID, writes[1].TxnID}) {
		t.Error(request.ids)
	}
	request.with(200, wonLine(request.ids[0]), wonLine(request.ids[1]))
	c.ends(writing, "committed")
}

func TestALineOfABatchIsTheCommitsBodyWithItsID(t *testing.T) {
	item, err := newCommitItem(&PreparedCommit{TxnID: "a\"" + uuid.NewString()})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{string(item.body), `{"isolation":"serializable","writes":[{"op":"put","store":"kv","key":"\n"}]}`} {
		var lines bytes.Buffer
		item.body = []byte(body)
		item.writeTo(&lines)
		line := lines.String()
		var found wire.BatchTxn
		if json.Unmarshal([]byte(line), &found) != nil || found.TxnID != item.prepared.TxnID || strings.Count(line, "\n") != 1 {
			t.Error(line)
		}
	}
}

func TestCallersThatKeepArrivingDoNotHoldABatchBack(t *testing.T) {
	coalescer := coalescer[int, int]{bounds: bounds{items: 1 << 30}}
	of := &group[int, int]{}
	stop, stopped, gathered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				coalescer.mutex.Lock()
				of.queue = append(of.queue, nil)
				coalescer.mutex.Unlock()
				runtime.Gosched()
			}
		}
	}()
	go func() {
		defer close(gathered)
		coalescer.letCallersQueue(of)
	}()
	select {
	case <-gathered:
	case <-time.After(10 * time.Second):
		t.Error("they still gather")
	}
	close(stop)
	<-stopped
}
