package tribunal

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"

	"tribunal.internal/client/wire"
)

// commitBounds are the bounds of coalesced commits. A second request in flight hides the latency of a distant service,
// and keeps one slow response from stalling every session.
var commitBounds = bounds{inFlight: 2, headStart: headStart, items: 512, bytes: 4 << 20}

// commitItem is a commit and the body of its request.
type commitItem struct {
	prepared *PreparedCommit
	body     []byte
}

// newCommitItem encodes the body of a commit's request.
func newCommitItem(prepared *PreparedCommit) (commitItem, error) {
	body, err := bodyOf(prepared.Request)
	return commitItem{prepared, body}, err
}

// requestBytesMax bounds the body of a request.
const requestBytesMax = 10 << 20

// bodyOf encodes the body of a request. A body that is too large is not sent: the service closes the connection when it
// refuses a body in transit, which may lose the refusal and leave the outcome unknown.
func bodyOf(request any) ([]byte, error) {
	body, err := jsonOf(request)
	if err != nil {
		return nil, misuse("the request cannot be represented in JSON: %v", err)
	}
	broken, found := replacedIn(body, request)
	switch {
	case found:
		return nil, misuse("the request contains %q, which is not UTF-8 and cannot be represented in JSON", broken)
	case len(body) > requestBytesMax:
		return nil, misuse("a request of %d bytes is too large, %d is the limit: split it", len(body), requestBytesMax)
	}
	return body, nil
}

// Groups of commits. A commit that writes nothing is decided without a log sync, and would wait for one in a batch with
// writes.
const (
	readOnlyCommits = "read-only"
	writingCommits  = "writing"
)

// group returns the group whose commits may share a batch with this one.
func (c commitItem) group() string {
	if len(given(c.prepared.Request.Writes)) == 0 {
		return readOnlyCommits
	}
	return writingCommits
}

// isBatchable reports whether the commit may be sent in a batch. A batch has one trace context, and is answered only
// when the slowest of its commits is.
func (c commitItem) isBatchable() bool {
	return c.prepared.Traceparent == "" && given(c.prepared.Request.Ack) != AckApplied && c.bytes() <= commitBounds.bytes
}

// bytes returns an upper bound of the length of the commit's line, unless JSON escapes characters of its id.
func (c commitItem) bytes() int { return len(c.body) + len(c.prepared.TxnID) + 16 }

// writeTo writes the commit's line of a batch: its body with the id as the first member.
func (c commitItem) writeTo(lines *bytes.Buffer) {
	id, _ := json.Marshal(c.prepared.TxnID)
	lines.WriteString(`{"txn_id":`)
	lines.Write(id)
	if members := c.body[1:]; len(members) > 1 {
		lines.WriteByte(',')
		lines.Write(members)
	} else {
		lines.Write(members)
	}
	lines.WriteByte('\n')
}

// sendBatch sends commits as one batch. It returns a reply to each, as if each had been a request of its own. Commits
// that an endpoint could not decide move to the next one.
func (c *Client) sendBatch(items []commitItem) []reply[wire.TxnOutcome] {
	if len(items) == 1 {
		return []reply[wire.TxnOutcome]{c.sendCommit(context.Background(), items[0])}
	}
	calls := c.failover(0)
	replies, maybeTaken := make([]reply[wire.TxnOutcome], len(items)), make([]bool, len(items))
	open := make([]int, len(items))
	for at := range open {
		open[at] = at
	}
	for len(open) > 0 {
		answer := inDoubt(c.sendLines(calls, items, open), calls.maybeTaken)
		// The service rejected the batch as such, so each commit has to be sent as a request of its own.
		isRefused := slices.Contains([]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, answer.status)
		// What an endpoint may have taken keeps that mark.
		if isRefused && len(open) == len(items) && !slices.Contains(maybeTaken, true) {
			return c.sendEach(items)
		}
		var again []int
		var failed *failure
		for n, line := range splitReply(answer, len(open)) {
			at := open[n]
			maybeTaken[at] = maybeTaken[at] || calls.maybeTaken
			replies[at] = inDoubt(line, maybeTaken[at])
			if answer.data == nil || calls.isSingle() {
				continue
			}
			if undecided := failureOf(line); undecided != nil && line.status != 0 {
				maybeTaken[at] = maybeTaken[at] || undecided.maybeTaken
				again, failed = append(again, at), undecided
			}
		}
		if failed != nil {
			calls.isOver(failed)
		}
		open = again
	}
	return replies
}

// sendLines sends some commits as one batch.
func (c *Client) sendLines(calls *failover, items []commitItem, open []int) reply[[]wire.TxnOutcome] {
	var body bytes.Buffer
	for _, at := range open {
		items[at].writeTo(&body)
	}
	withName := func(_ context.Context, request *http.Request) error {
		if c.options.ClientName != "" {
			request.Header.Set("Tribunal-Client", c.options.ClientName)
		}
		return nil
	}
	// Not a caller's context: a caller that gives up must not affect the others.
	ctx := context.Background()
	return askOn(ctx, c, calls, linesOf[wire.TxnOutcome], func(ctx context.Context, at *wire.Client) (*response, error) {
		return at.BatchCommitWithBody(ctx, "application/x-ndjson", bytes.NewReader(body.Bytes()), withName)
	})
}

// sendEach sends every commit as a request of its own.
func (c *Client) sendEach(items []commitItem) []reply[wire.TxnOutcome] {
	replies := make([]reply[wire.TxnOutcome], len(items))
	var sent sync.WaitGroup
	for at, item := range items {
		sent.Add(1)
		go func() {
			defer sent.Done()
			replies[at] = c.sendCommit(context.Background(), item)
		}()
	}
	sent.Wait()
	return replies
}

// splitReply splits the reply to a batch into one reply per commit.
func splitReply(answer reply[[]wire.TxnOutcome], count int) []reply[wire.TxnOutcome] {
	replies := make([]reply[wire.TxnOutcome], count)
	err := answer.err
	if answer.data != nil && len(*answer.data) != count {
		err = misbehaved("%d results for %d commits", len(*answer.data), count)
	}
	for at := range replies {
		if answer.data == nil || err != nil {
			// If the response cannot be parsed, the commits may have taken effect: each is resolved by its id.
			replies[at] = reply[wire.TxnOutcome]{
				status: answer.status, problem: answer.problem, endpoint: answer.endpoint, err: err,
				neverSent: answer.neverSent, mistake: answer.mistake,
			}
			continue
		}
		replies[at] = singleOf(&(*answer.data)[at], answer.header)
	}
	return replies
}

// singleOf turns the result of one commit of a batch into the reply that a request of its own would have received.
func singleOf(outcome *wire.TxnOutcome, header http.Header) reply[wire.TxnOutcome] {
	if outcome.Problem != nil {
		return reply[wire.TxnOutcome]{status: int(outcome.Problem.Status), problem: outcome.Problem}
	}
	return reply[wire.TxnOutcome]{data: outcome, header: header}
}

// linesOf parses NDJSON.
func linesOf[T any](body []byte) (*[]T, error) {
	lines := []T{}
	for decoder := json.NewDecoder(bytes.NewReader(body)); ; {
		var line T
		switch err := decoder.Decode(&line); err {
		case nil:
			lines = append(lines, line)
		case io.EOF:
			return &lines, nil
		default:
			return nil, err
		}
	}
}
