package tribunal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tribunal.internal/client/wire"
)

const someID = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a"

// heldRead is a Begin or a read that waits for its answer.
type heldRead struct {
	path   string
	body   wire.BeginRequest
	answer chan [2]any
}

func (h heldRead) with(status int, body string) { h.answer <- [2]any{status, body} }

// lose closes the connection without an answer.
func (h heldRead) lose() { close(h.answer) }

func (h heldRead) keys() (keys []string) {
	for _, row := range given(h.body.Read) {
		keys = append(keys, *row.Key)
	}
	return keys
}

// read answers with all rows: x/7 has the value 7, none is absent, and one whose version 5 is known is unchanged.
func (h heldRead) read() {
	rows := []string{}
	for _, row := range given(h.body.Read) {
		text := fmt.Sprintf(`{"store":"kv","key":%q`, *row.Key)
		switch {
		case *row.Key == "none":
		case given(row.Version) == "5":
			text += `,"version":"5","unchanged":true`
		default:
			text += `,"version":"5","value":` + (*row.Key)[strings.Index(*row.Key, "/")+1:]
		}
		rows = append(rows, text+"}")
	}
	read := `"rows":[` + strings.Join(rows, ",") + `],"ranges":[]`
	if h.path == "/v1/txns" {
		h.with(201, `{"txn_id":"`+someID+`","snapshots":{"kv":"9"},"epoch":"10","expires_at":"","session":"s",`+read+`}`)
		return
	}
	h.with(200, `{"applied":"9",`+read+`}`)
}

// A readingCrowd reads and begins on a client with the maximum number of requests in flight.
type readingCrowd struct {
	t       *testing.T
	client  *Client
	arrived chan heldRead
	first   []heldRead
}

func newReadingCrowd(t *testing.T, options Options) *readingCrowd {
	t.Helper()
	c := &readingCrowd{t: t, arrived: make(chan heldRead, 1000)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/commit") {
			_, _ = io.WriteString(w, strings.Replace(wonLine("txn"), `"s"`, `"mine"`, 1))
			return
		}
		request := heldRead{path: r.URL.Path, answer: make(chan [2]any, 1)}
		_ = json.NewDecoder(r.Body).Decode(&request.body)
		_, _ = io.Copy(io.Discard, r.Body)
		c.arrived <- request
		select {
		case answer, ok := <-request.answer:
			if !ok {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(answer[0].(int))
			_, _ = io.WriteString(w, answer[1].(string))
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	client, err := New(server.URL, options)
	if err != nil {
		t.Fatal(err)
	}
	c.client = client
	return c
}

// once is options without retries.
var once = Options{Retry: RetryPolicy{AttemptsMax: 1}}

// reading starts the maximum number of reads of the store kv in flight.
func reading(t *testing.T, options Options) *readingCrowd {
	t.Helper()
	c := newReadingCrowd(t, options)
	for range readBounds.inFlight {
		c.read(t.Context(), "first/1")
		c.first = append(c.first, <-c.arrived)
	}
	return c
}

// beginning starts the maximum number of Begins in flight.
func beginning(t *testing.T) *readingCrowd {
	t.Helper()
	c := newReadingCrowd(t, once)
	for range readBounds.inFlight {
		c.begin(onKv)
		c.first = append(c.first, <-c.arrived)
	}
	return c
}

var onKv = BeginOptions{Stores: []string{"kv"}}

func (c *readingCrowd) release() {
	for _, request := range c.first {
		request.read()
	}
}

// read sends the result of a read to the channel.
func (c *readingCrowd) read(ctx context.Context, keys ...string) chan string {
	var rows []RowRead
	for _, key := range keys {
		rows = append(rows, RowRead{Key: key})
	}
	return c.readRows(ctx, rows)
}

func (c *readingCrowd) readRows(ctx context.Context, rows []RowRead) chan string {
	end := make(chan string, 1)
	go func() {
		found, err := c.client.ReadRows(ctx, "kv", rows)
		if err != nil {
			end <- told(err)
			return
		}
		var texts []string
		for _, row := range found.Rows {
			switch {
			case row.Unchanged:
				texts = append(texts, "unchanged")
			case row.Row == nil:
				texts = append(texts, "absent")
			default:
				texts = append(texts, string(row.Row.Value))
			}
		}
		end <- strings.Join(texts, " ")
	}()
	return end
}

func told(err error) string {
	var mistake *ClientMistake
	var unavailable *Unavailable
	switch {
	case errors.As(err, &mistake):
		return "mistake " + mistake.Code()
	case errors.As(err, &unavailable) && unavailable.Problem != nil:
		return "unavailable " + unavailable.Problem.Code
	case errors.As(err, &unavailable):
		return "lost"
	}
	return err.Error()
}

type begun struct {
	txn *Transaction
	err error
}

func (c *readingCrowd) begin(options BeginOptions) chan begun {
	end := make(chan begun, 1)
	go func() {
		txn, err := c.client.Begin(context.Background(), options)
		end <- begun{txn, err}
	}()
	return end
}

// waiting counts the queued reads and Begins.
func (c *readingCrowd) waiting() int {
	count := 0
	c.client.reads.mutex.Lock()
	for _, group := range c.client.reads.groups {
		count += len(group.queue)
	}
	c.client.reads.mutex.Unlock()
	c.client.begins.mutex.Lock()
	for _, group := range c.client.begins.groups {
		count += len(group.queue)
	}
	c.client.begins.mutex.Unlock()
	return count
}

func (c *readingCrowd) wait(count int) {
	for c.waiting() != count {
		time.Sleep(time.Millisecond)
	}
}

func ends(t *testing.T, ends []chan string, expected ...string) {
	t.Helper()
	for at, end := range ends {
		if found := <-end; found != expected[min(at, len(expected)-1)] {
			t.Errorf("%d: %s", at, found)
		}
	}
}

func TestReadsThatWaitLeaveTogetherAndEachGetsItsRows(t *testing.T) {
	c := reading(t, once)
	reads := []chan string{c.read(t.Context(), "a/1", "b/2")}
	c.wait(1)
	reads = append(reads, c.read(t.Context(), "none"))
	c.wait(2)
	reads = append(reads, c.read(t.Context(), "b/2", "c/3", "a/1"))
	c.wait(3)
	row := make(chan string, 1)
	go func() {
		found, err := c.client.Row(t.Context(), "kv", "a/1")
		row <- fmt.Sprint(string(found.Value), err)
	}()
	c.wait(4)
	c.release()
	request := <-c.arrived
	if !slices.Equal(request.keys(), []string{"a/1", "b/2", "none", "c/3"}) || request.path != "/v1/stores/kv/rows/read" {
		t.Error(request.path, request.keys())
	}
	request.read()
	ends(t, append(reads, row), "1 2", "absent", "2 3 1", "1<nil>")
}

func TestARowIsAskedForOnceForEachVersionThatCallersHave(t *testing.T) {
	c := reading(t, once)
	var reads []chan string
	for at, known := range []Version{0, 5, 4, 0} {
		reads = append(reads, c.readRows(t.Context(), []RowRead{{"a/1", known}}))
		c.wait(at + 1)
	}
	c.release()
	request := <-c.arrived
	if len(request.keys()) != 3 {
		t.Error(request.keys())
	}
	request.read()
	ends(t, reads, "1", "unchanged", "1", "1")
}

func TestCallersThatShareARequestShareNoBytesOfARow(t *testing.T) {
	c := reading(t, once)
	rows := make(chan *Row)
	for at := range 3 {
		go func() {
			row, err := c.client.Row(context.Background(), "kv", "a/1")
			if err != nil {
				t.Error(err)
			}
			rows <- row
		}()
		c.wait(at + 1)
	}
	c.release()
	(<-c.arrived).read()
	for range 3 {
		row := <-rows
		if string(row.Value) != "1" {
			t.Errorf("%q", row.Value)
		}
		row.Value[0] = 'x'
	}
}

func TestReadsOfOtherStoresAndLargeOnesWaitForNobody(t *testing.T) {
	c := reading(t, once)
	go func() { _, _ = c.client.Row(context.Background(), "other", "a/1") }()
	if request := <-c.arrived; request.path != "/v1/stores/other/rows/read" {
		t.Error(request.path)
	} else {
		request.read()
	}
	large := c.read(t.Context(), slices.Repeat([]string{"a/1"}, 1001)...)
	request := <-c.arrived
	if len(request.keys()) != 1001 {
		t.Error(len(request.keys()))
	}
	request.read()
	ends(t, []chan string{large}, strings.TrimSpace(strings.Repeat("1 ", 1001)))
	c.release()
}

func TestARefusalOfWhatIsReadSendsEachAlone(t *testing.T) {
	for status, code := range map[int]string{422: "read_too_large", 400: "bad_request"} {
		c := reading(t, once)
		reads := []chan string{c.read(t.Context(), "a/1"), c.read(t.Context(), "b/2")}
		c.wait(2)
		c.release()
		(<-c.arrived).with(status, problemText(status, code))
		for range 2 {
			if request := <-c.arrived; request.keys()[0] == "a/1" {
				request.read()
			} else {
				request.with(status, problemText(status, code))
			}
		}
		ends(t, reads, "1", "mistake "+code)
	}
}

func TestOtherFailuresOfAReadReachEach(t *testing.T) {
	for _, failure := range []struct {
		answer   func(heldRead)
		expected string
	}{
		{func(request heldRead) { request.with(503, problemText(503, "overloaded")) }, "unavailable overloaded"},
		{heldRead.lose, "lost"},
		{
			func(request heldRead) { request.with(200, `{"applied":"9","rows":[{"store":"kv","key":"a/1"}]}`) },
			"unexpected response: 1 rows returned where 2 were requested",
		},
	} {
		c := reading(t, once)
		reads := []chan string{c.read(t.Context(), "a/1"), c.read(t.Context(), "b/2")}
		c.wait(2)
		c.release()
		failure.answer(<-c.arrived)
		ends(t, reads, failure.expected)
	}
}

func TestARequestHasAtMost512CallersAnd10000Rows(t *testing.T) {
	for _, callers := range [][2]int{{600, 1}, {14, 900}} {
		c := reading(t, once)
		var reads []chan string
		for caller := range callers[0] {
			var keys []string
			for row := range callers[1] {
				keys = append(keys, fmt.Sprintf("x/%d", 1+caller*callers[1]+row))
			}
			reads = append(reads, c.read(t.Context(), keys...))
		}
		c.wait(callers[0])
		c.release()
		first, second := <-c.arrived, <-c.arrived
		sizes := []int{len(first.keys()), len(second.keys())}
		if sizes[0]+sizes[1] != callers[0]*callers[1] || slices.Max(sizes) > 10_000 || callers[1] == 1 && slices.Max(sizes) != 512 {
			t.Error(sizes)
		}
		first.read()
		second.read()
		for at, read := range reads {
			if found := <-read; !strings.HasPrefix(found+" ", fmt.Sprintf("%d ", 1+at*callers[1])) {
				t.Errorf("%d: %.40s", at, found)
			}
		}
	}
}

func TestAReaderThatGoesAwayDisturbsNobody(t *testing.T) {
	c := reading(t, once)
	waits, cancelWaiting := context.WithCancel(t.Context())
	flies, cancelFlying := context.WithCancel(t.Context())
	gone := c.read(waits, "a/1")
	c.wait(1)
	cancelWaiting()
	ends(t, []chan string{gone}, "context canceled")
	away := c.read(flies, "b/2")
	c.wait(1)
	stays := c.read(t.Context(), "c/3")
	c.wait(2)
	c.release()
	request := <-c.arrived
	if !slices.Equal(request.keys(), []string{"b/2", "c/3"}) {
		t.Error(request.keys())
	}
	cancelFlying()
	ends(t, []chan string{away}, "context canceled")
	request.read()
	ends(t, []chan string{stays}, "3")
	again := c.read(t.Context(), "d/4")
	(<-c.arrived).read()
	ends(t, []chan string{again}, "4")
}

func TestBeginsThatWaitLeaveTogetherWithAnIDEach(t *testing.T) {
	c := beginning(t)
	with := func(level Isolation, keys ...string) BeginOptions {
		return BeginOptions{Stores: []string{"kv"}, Isolation: level, Read: map[string][]string{"kv": keys}}
	}
	var begins []chan begun
	for at, options := range []BeginOptions{with("", "a/1", "b/2"), onKv, with(Snapshot, "b/2", "none")} {
		begins = append(begins, c.begin(options))
		c.wait(at + 1)
	}
	c.release()
	request := <-c.arrived
	if !slices.Equal(request.keys(), []string{"a/1", "b/2", "none"}) || !reflect.DeepEqual(request.body.Stores, &[]string{"kv"}) {
		t.Errorf("%+v", request.body)
	}
	request.read()
	var txns []*Transaction
	for _, begin := range begins {
		end := <-begin
		if end.err != nil {
			t.Fatal(end.err)
		}
		if at, ok := end.txn.Snapshot("kv"); at != 9 || !ok {
			t.Error(at, ok)
		}
		txns = append(txns, end.txn)
	}
	one, two, three := txns[0].ID(), txns[1].ID(), txns[2].ID()
	if one != someID || two == three || two == one || three == one || two[:15] != one[:15] || three[:15] != one[:15] {
		t.Error(one, two, three)
	}
	if !timeOf(two).Equal(timeOf(one)) {
		t.Error(two)
	}
	// Each transaction has its rows without another request.
	a, errA := txns[0].Get(t.Context(), "kv", "a/1")
	b, errB := txns[2].Get(t.Context(), "kv", "b/2")
	none, errNone := txns[2].Get(t.Context(), "kv", "none")
	if errA != nil || errB != nil || errNone != nil || string(a.Value) != "1" || string(b.Value) != "2" || none != nil {
		t.Error(a, b, none)
	}
	if !txns[1].Blind() || len(txns[1].fetched) != 0 || txns[2].isolation != Snapshot {
		t.Error("rows or levels of others")
	}
}

func TestBeginsWithOtherStoresSessionsOrWaitsLeaveApart(t *testing.T) {
	c := beginning(t)
	for _, options := range []BeginOptions{
		{},
		{Stores: []string{"other"}},
		{Stores: []string{"kv"}, Read: map[string][]string{"other": {"a/1"}}},
		{Stores: []string{"kv"}, Session: "s"},
		{Stores: []string{"kv"}, Wait: time.Second},
		{Read: map[string][]string{"kv": {"a/1"}}},
	} {
		begin := c.begin(options)
		(<-c.arrived).read()
		if end := <-begin; end.err != nil {
			t.Error(end.err)
		}
	}
	begin := c.begin(BeginOptions{Stores: []string{"kv"}, Ranges: map[string][]KeyRange{"kv": {{"a", "", 7}}}})
	request := <-c.arrived
	if ranges := given(request.body.Ranges); len(ranges) != 1 || *ranges[0].Start != "a" || ranges[0].End != nil || *ranges[0].Limit != 7 {
		t.Errorf("%+v", ranges)
	}
	request.read()
	if end := <-begin; end.err == nil || !strings.Contains(end.err.Error(), "0 ranges returned where 1") {
		t.Error(end.err)
	}
	c.release()
}

func TestBeginsAreSentWithTheSessionOfTheMomentWhenTheyLeave(t *testing.T) {
	c := beginning(t)
	before := c.begin(onKv)
	c.wait(1)
	txn := c.client.BeginLocal("")
	txn.Put("kv", "a/1", 1)
	if _, err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	later := c.begin(onKv)
	c.wait(2)
	c.release()
	request := <-c.arrived
	if given(request.body.Session) != "mine" {
		t.Error(request.body.Session)
	}
	request.read()
	if (<-before).err != nil || (<-later).err != nil {
		t.Error("a Begin failed")
	}
}

func TestBeginsThatAreRefusedTogetherAreSentAloneAndOtherFailuresReachEach(t *testing.T) {
	c := beginning(t)
	with := func(key string) BeginOptions {
		return BeginOptions{Stores: []string{"kv"}, Read: map[string][]string{"kv": {key}}}
	}
	good, bad := c.begin(with("a/1")), c.begin(with("b/2"))
	c.wait(2)
	c.release()
	(<-c.arrived).with(422, problemText(422, "read_too_large"))
	for range 2 {
		if request := <-c.arrived; request.keys()[0] == "a/1" {
			request.read()
		} else {
			request.with(422, problemText(422, "read_too_large"))
		}
	}
	if end := <-good; end.err != nil || end.txn.ID() != someID {
		t.Error(end)
	}
	if end := <-bad; told(end.err) != "mistake read_too_large" {
		t.Error(end)
	}
	c = beginning(t)
	lost := []chan begun{c.begin(onKv), c.begin(onKv)}
	c.wait(2)
	c.release()
	(<-c.arrived).lose()
	for _, begin := range lost {
		if end := <-begin; told(end.err) != "lost" {
			t.Error(end)
		}
	}
}

func TestWithoutCoalescingEveryBeginAndReadIsARequestOfItsOwn(t *testing.T) {
	c := newReadingCrowd(t, Options{NoCoalesce: true})
	var reads []chan string
	for range 4 {
		reads = append(reads, c.read(t.Context(), "a/1"))
		c.begin(onKv)
	}
	requests := make([]heldRead, 8)
	for at := range requests {
		requests[at] = <-c.arrived
	}
	for _, request := range requests {
		request.read()
	}
	ends(t, reads, "1")
}

func TestALoneRequestThatIsRefusedIsNotSentAgain(t *testing.T) {
	c := newReadingCrowd(t, once)
	end := c.begin(BeginOptions{Stores: []string{"nope"}})
	(<-c.arrived).with(422, problemText(422, "refused"))
	if found := told((<-end).err); found != "mistake refused" {
		t.Error(found)
	}
}

func TestAnIDBesideAnotherNeedsAUUIDv7(t *testing.T) {
	for _, bad := range []string{"", "txn-0", "550e8400-e29b-41d4-a716-446655440000"} {
		if id, err := idBeside(bad); err == nil {
			t.Error(id)
		}
	}
}
