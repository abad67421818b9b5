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

// commitBounds are those of gathered commits. A second flight commits as many per second as one (measured: 1 and 2 alike,
// 4 fewer), fills the way to a distant service, and a request that hangs does not hold up the others.
var commitBounds = bounds{flights: 2, items: 512, bytes: 4 << 20}

// gathered is a commit, and the body of its request.
type gathered struct {
	prepared *PreparedCommit
	body     []byte
}

// gather writes the body of a commit's request.
func gather(prepared *PreparedCommit) (gathered, error) {
	body, err := json.Marshal(prepared.Request)
	if err != nil {
		return gathered{}, misuse("the commit cannot be represented in JSON: %v", err)
	}
	return gathered{prepared, body}, nil
}

// isFree tells whether the commit may leave with others. A batch has one trace context, and its reply waits for the
// slowest of its commits.
func (g gathered) isFree() bool {
	return g.prepared.Traceparent == "" && given(g.prepared.Request.Ack) != AckApplied && g.bytes() <= commitBounds.bytes
}

// bytes is the length of the item's line, or a little more.
func (g gathered) bytes() int { return len(g.body) + len(g.prepared.TxnID) + 16 }

// writeTo writes the item's line of a batch: the body with the id before its other members.
func (g gathered) writeTo(lines *bytes.Buffer) {
	id, _ := json.Marshal(g.prepared.TxnID)
	lines.WriteString(`{"txn_id":`)
	lines.Write(id)
	if members := g.body[1:]; len(members) > 1 {
		lines.WriteByte(',')
		lines.Write(members)
	} else {
		lines.Write(members)
	}
	lines.WriteByte('\n')
}

// together sends gathered commits, and returns a reply to each, as if each had been sent on its own.
func (c *Client) together(items []gathered) []reply[wire.TxnOutcome] {
	if len(items) == 1 {
		return []reply[wire.TxnOutcome]{c.alone(context.Background(), items[0])}
	}
	var body bytes.Buffer
	for _, item := range items {
		item.writeTo(&body)
	}
	withName := func(_ context.Context, request *http.Request) error {
		if c.options.ClientName != "" {
			request.Header.Set("Tribunal-Client", c.options.ClientName)
		}
		return nil
	}
	// No caller's context: one that goes away does not disturb the others.
	answer := askFor(context.Background(), c, 0, linesOf[wire.TxnOutcome], func(ctx context.Context) (*response, error) {
		return c.wire.BatchCommitWithBody(ctx, "application/x-ndjson", bytes.NewReader(body.Bytes()), withName)
	})
	// The service refused the form of the batch, so that each commit has to be sent on its own.
	if slices.Contains([]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, answer.status) {
		return c.each(items)
	}
	return apart(answer, len(items))
}

// each sends every commit on its own.
func (c *Client) each(items []gathered) []reply[wire.TxnOutcome] {
	replies := make([]reply[wire.TxnOutcome], len(items))
	var sent sync.WaitGroup
	for at, item := range items {
		sent.Add(1)
		go func() {
			defer sent.Done()
			replies[at] = c.alone(context.Background(), item)
		}()
	}
	sent.Wait()
	return replies
}

// apart turns the reply to a batch into one reply per commit.
func apart(answer reply[[]wire.TxnOutcome], count int) []reply[wire.TxnOutcome] {
	replies := make([]reply[wire.TxnOutcome], count)
	err := answer.err
	if answer.data != nil && len(*answer.data) != count {
		err = misbehaved("%d results for %d commits", len(*answer.data), count)
	}
	for at := range replies {
		if answer.data == nil || err != nil {
			// With a response that cannot be read the commits may have arrived: each is resolved by its id.
			replies[at] = reply[wire.TxnOutcome]{
				status: answer.status, problem: answer.problem, err: err, neverSent: answer.neverSent, untrusted: answer.untrusted,
			}
			continue
		}
		replies[at] = singleOf(&(*answer.data)[at], answer.header)
	}
	return replies
}

// singleOf turns the result of one commit of a batch into the reply that it would have been on its own.
func singleOf(outcome *wire.TxnOutcome, header http.Header) reply[wire.TxnOutcome] {
	if outcome.Problem != nil {
		return reply[wire.TxnOutcome]{status: int(outcome.Problem.Status), problem: outcome.Problem}
	}
	return reply[wire.TxnOutcome]{data: outcome, header: header}
}

// linesOf reads NDJSON.
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
