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
	// streamCommitsMax bounds the commits that may wait for their verdicts: as many as the service takes in.
	streamCommitsMax = 1024
	// streamBytesMax bounds the bytes of their lines. A longer commit waits until there is no other.
	streamBytesMax = 4 << 20
	// streamLineBytesMax bounds a line: the service ends a stream with a longer one.
	streamLineBytesMax = 1 << 20
	// streamAttemptsMax is how often a commit that the service certainly did not take in is written: a stream may end at
	// any time.
	streamAttemptsMax = 2
)

// CommitStream is a stream of commits over a connection of its own. It is safe for concurrent use: many sessions commit
// at the same time. It connects on first use, and again when the connection was lost.
type CommitStream struct {
	client *Client
	window window

	mutex  sync.Mutex
	link   *link
	closed bool
}

// CommitStream opens a stream of commits: for engines that commit all the time, and for whom a request each, or a batch,
// is too slow. It sends nothing yet.
func (c *Client) CommitStream() *CommitStream {
	return &CommitStream{client: c, window: window{commitsMax: streamCommitsMax, bytesMax: streamBytesMax}}
}

// Commit asks for the verdict of a prepared commit, as [Client.Commit] does. It waits before that while 1,024 commits, or
// 4 MiB of them, wait for their verdicts. Commits that wait at the same time may be decided in any order. A commit with a
// Traceparent is sent as a request of its own, because a stream has one trace context, and so is one of more than 1 MiB.
// If the context ends, a commit that was written arrives all the same.
//
// When the connection is lost, the outcome is requested by the id. Until it is known, Commit does not return.
func (s *CommitStream) Commit(ctx context.Context, prepared *PreparedCommit) (Verdict, error) {
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
		return nil, &Unavailable{Err: err}
	}
	answer, err := s.delivered(ctx, prepared.TxnID, line.Bytes())
	if errors.Is(err, errRepeated) {
		// The stream has this id already: a request of its own gets the verdict of the first.
		return s.client.Commit(ctx, prepared)
	}
	if err != nil {
		return nil, err
	}
	if lost := answer.lost(); lost != nil {
		return s.client.recorded(s.client.resolve(ctx, prepared.TxnID, lost))
	}
	return s.client.recorded(verdict(answer))
}

// Close ends the stream. Verdicts of commits that wait still come.
func (s *CommitStream) Close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.closed = true
	if s.link != nil {
		s.link.finish()
	}
}

// openLink returns a link that takes lines.
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

// delivered writes a line and waits for its reply. The line leaves the window when it has its reply, or when its link is
// over: also if its caller does not wait that long.
func (s *CommitStream) delivered(ctx context.Context, txnID string, line []byte) (reply[wire.TxnOutcome], error) {
	timeout := s.client.options.Timeout
	leave := func() { s.window.leave(len(line)) }
	isAbandoned := false
	defer func() {
		if !isAbandoned {
			leave()
		}
	}()
	ended := errors.New("the stream ended")
	for range streamAttemptsMax {
		link, err := s.openLink()
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
		timer := time.NewTimer(timeout)
		select {
		case delivered := <-comes:
			timer.Stop()
			if delivered.notTaken == nil {
				return delivered.reply, nil
			}
			ended = delivered.notTaken
		case <-ctx.Done():
			timer.Stop()
			isAbandoned = link.abandon(txnID, comes, leave)
			return reply[wire.TxnOutcome]{err: ctx.Err()}, nil
		case <-timer.C:
			isAbandoned = link.abandon(txnID, comes, leave)
			return reply[wire.TxnOutcome]{err: fmt.Errorf("no verdict within %v", timeout)}, nil
		}
	}
	return reply[wire.TxnOutcome]{err: ended, neverSent: true}, nil
}
