package tribunal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tribunal.internal/client/wire"
)

const (
	// streamCommitsMax bounds the commits that may wait for their verdicts: as many as the service accepts.
	streamCommitsMax = 1024
	// streamBytesMax bounds the bytes of their lines. A longer commit waits until it is the only one.
	streamBytesMax = 4 << 20
	// streamLineBytesMax bounds a line: the service ends a stream with a longer one.
	streamLineBytesMax = 1 << 20
	// streamAttemptsMax is how often a commit that the only endpoint certainly did not accept is written: a stream may end
	// at any time.
	streamAttemptsMax = 2
)

// CommitStream is a stream of commits over a connection of its own. It is safe for concurrent use: many sessions commit
// at the same time. It connects on first use, and reconnects after a loss.
type CommitStream struct {
	client *Client
	window window

	mutex  sync.Mutex
	link   *link
	closed bool
}

// CommitStream opens a stream of commits: for engines that commit continuously, for which one request per commit, or a
// batch, is too slow. It sends nothing yet. Close it when it is no longer used: its connection stays open until then.
func (c *Client) CommitStream() *CommitStream {
	return &CommitStream{client: c, window: window{commitsMax: streamCommitsMax, bytesMax: streamBytesMax}}
}

// Commit requests the verdict of a prepared commit, as [Client.Commit] does. It first waits while 1,024 commits, or 4
// MiB of them, wait for their verdicts. Commits that wait at the same time may be decided in any order. A commit with a
// Traceparent is sent as a request of its own, because a stream has one trace context, and so is one of more than 1
// MiB. If the context ends, a written commit arrives nevertheless, and the error is *OutcomeUnknown; otherwise it is
// the context's.
//
// When the connection is lost, the commit is written to the next endpoint with the same id; if there is only one, or no
// other answers, the outcome is queried by the id. Until it is known, Commit does not return.
func (s *CommitStream) Commit(ctx context.Context, prepared *PreparedCommit) (Verdict, error) {
	if err := mayBeSent(ctx, prepared); err != nil {
		return nil, err
	}
	if prepared.Traceparent != "" {
		return s.client.Commit(ctx, prepared)
	}
	item, err := newCommitItem(prepared)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	item.writeTo(&line)
	if line.Len() > streamLineBytesMax {
		return s.client.Commit(ctx, prepared)
	}
	if err := s.window.enter(ctx, line.Len()); err != nil {
		return nil, err
	}
	answer, err := s.delivered(ctx, prepared.TxnID, line.Bytes(), applyWait(prepared))
	if errors.Is(err, errRepeated) {
		// The stream already has this id: a separate request gets the verdict of the first.
		return s.client.Commit(ctx, prepared)
	}
	if err != nil {
		return nil, err
	}
	if lost := answer.lost(); lost != nil {
		deadline := time.Now().Add(s.client.options.ResolveTimeout)
		return s.client.recorded(s.client.resolve(ctx, prepared.TxnID, lost, deadline))
	}
	return s.client.recorded(decided(prepared.TxnID, answer))
}

// Close ends the stream. Waiting commits still get their verdicts.
func (s *CommitStream) Close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.closed = true
	if s.link != nil {
		s.link.release()
	}
}

// openLink returns a link that accepts lines.
func (s *CommitStream) openLink() (*link, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return nil, misuse("the commit stream is closed")
	}
	if s.link == nil || s.link.isOver() {
		s.link = startLink(s.client)
	}
	return s.link, nil
}

// delivered writes a line and waits for its reply. With several endpoints, it is written again after each failure,
// within the timeout and the time that the service may wait. The line leaves the window when it gets its reply or its
// link is over, even if its caller has left by then.
func (s *CommitStream) delivered(ctx context.Context, txnID string, line []byte, wait time.Duration) (reply[wire.TxnOutcome], error) {
	urls, timeout, begun := s.client.endpoints.urls, s.client.options.Timeout, time.Now()
	whole := wait + timeout
	leave := func() { s.window.leave(len(line)) }
	isAbandoned := false
	defer func() {
		if !isAbandoned {
			leave()
		}
	}()
	attemptsMax := streamAttemptsMax
	if len(urls) > 1 {
		attemptsMax = roundsMax * len(urls)
	}
	ended, maybeTaken := make([]error, len(urls)), false
	for attempts := 0; attempts < attemptsMax && (len(urls) == 1 || time.Since(begun) < whole); attempts++ {
		if attempts > 0 && attempts%len(urls) == 0 && len(urls) > 1 && sleep(ctx, s.client.options.Retry.step(attempts)) != nil {
			break
		}
		link, err := s.openLink()
		if err != nil && maybeTaken {
			// The stream was closed meanwhile: the outcome is that of the earlier writes.
			ended[s.client.endpoints.current()] = err
			break
		}
		if err != nil {
			return reply[wire.TxnOutcome]{}, err
		}
		comes, err := link.write(txnID, line)
		if errors.Is(err, errOver) {
			continue
		}
		if err != nil {
			return reply[wire.TxnOutcome]{}, err
		}
		share := wait + timeout/time.Duration(len(urls))
		if attempts+1 < len(urls) {
			// Another endpoint has not been tried.
			share = min(share, wait+s.client.endpoints.timeout)
		}
		delivered, err := s.awaited(ctx, link, comes, share, whole)
		if err != nil {
			isAbandoned = link.abandon(txnID, comes, leave)
			return reply[wire.TxnOutcome]{err: err}, nil
		}
		if delivered.notTaken != nil {
			ended[link.endpoint] = delivered.notTaken
			continue
		}
		failed := failureOf(delivered.reply)
		if failed == nil || len(urls) == 1 {
			return inDoubt(delivered.reply, maybeTaken), nil
		}
		maybeTaken = maybeTaken || failed.maybeTaken
		ended[link.endpoint] = failed.err
		s.leave(link)
	}
	if ctx.Err() != nil {
		return endedReply[wire.TxnOutcome](ctx, !maybeTaken), nil
	}
	if len(urls) > 1 {
		return reply[wire.TxnOutcome]{err: noneAnswered(urls, ended), neverSent: !maybeTaken}, nil
	}
	if ended[0] == nil {
		ended[0] = errors.New("the stream ended")
	}
	return reply[wire.TxnOutcome]{err: ended[0], neverSent: true}, nil
}

// awaited waits for the reply to a line, at most for the timeout. A link that is silent for its share of that is cut if
// there are other endpoints.
func (s *CommitStream) awaited(
	ctx context.Context, link *link, comes <-chan delivered, silent, timeout time.Duration,
) (delivered, error) {
	endpoints, written := len(s.client.endpoints.urls), time.Now()
	share := time.NewTimer(silent)
	defer share.Stop()
	whole := time.NewTimer(timeout)
	defer whole.Stop()
	for {
		select {
		case arrived := <-comes:
			return arrived, nil
		case <-ctx.Done():
			return delivered{}, ctx.Err()
		case <-share.C:
			if endpoints > 1 && link.isSilentSince(written) {
				link.giveUp()
			}
		case <-whole.C:
			return delivered{}, fmt.Errorf("no verdict within %v", timeout)
		}
	}
}

// leave sends further lines to another endpoint. Replies to written lines still arrive.
func (s *CommitStream) leave(link *link) {
	s.mutex.Lock()
	if s.link == link {
		s.link = nil
		s.client.endpoints.failed(link.endpoint)
	}
	s.mutex.Unlock()
	link.release()
}
