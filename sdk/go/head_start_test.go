package tribunal

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// SetHeadStart sets how long a request with commits is in flight before another may follow.
func (c *Client) SetHeadStart(to time.Duration) {
	c.commits.mutex.Lock()
	defer c.commits.mutex.Unlock()
	c.commits.bounds.headStart = to
}

// withOneInFlight makes a crowd with one held request in flight, which never counts as slow.
func withOneInFlight(t *testing.T) (c *crowd, first held, cancel context.CancelFunc, end chan string) {
	t.Helper()
	url, arrived := holding(t)
	client, err := New(url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	client.SetHeadStart(time.Hour)
	c = &crowd{t: t, client: client, arrived: arrived}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	end = c.commit(ctx, c.prepared(nil))
	return c, <-arrived, cancel, end
}

// gathered commits, and returns once all commits are queued. None may be sent.
func (c *crowd) gathered(count int) (ids []string, ends []chan string) {
	c.t.Helper()
	for at := range count {
		prepared := c.prepared(nil)
		ids = append(ids, prepared.TxnID)
		ends = append(ends, c.commit(c.t.Context(), prepared))
		for c.waiting() <= at {
			select {
			case request := <-c.arrived:
				c.t.Fatalf("%+v is sent beside a request that is not slow", request)
			case <-time.After(time.Millisecond):
			}
		}
	}
	return ids, ends
}

func TestCommitsGatherWhileARequestIsNotSlow(t *testing.T) {
	c, first, _, end := withOneInFlight(t)
	ids, ends := c.gathered(3)
	first.with(200, wonLine(first.ids[0]))
	c.ends([]chan string{end}, "committed")
	request := <-c.arrived
	if !slices.Equal(request.ids, ids) {
		t.Error(request.ids)
	}
	request.with(200, wonLine(ids[0]), lostLine(ids[1]), wonLine(ids[2]))
	c.ends(ends, "committed", "aborted read_conflict", "committed")
}

func TestASecondRequestFollowsASlowOne(t *testing.T) {
	c, first, _, end := withOneInFlight(t)
	c.client.SetHeadStart(headStart)
	others := []chan string{c.commit(t.Context(), c.prepared(nil)), c.commit(t.Context(), c.prepared(nil))}
	for left := len(others); left > 0; {
		request := <-c.arrived
		left -= len(request.ids)
		var lines []string
		for _, id := range request.ids {
			lines = append(lines, wonLine(id))
		}
		request.with(200, lines...)
	}
	c.ends(others, "committed")
	first.with(200, wonLine(first.ids[0]))
	c.ends([]chan string{end}, "committed")
}

func TestACancelledRequestLetsThoseThatGatheredLeaveTogether(t *testing.T) {
	c, _, cancel, end := withOneInFlight(t)
	ids, ends := c.gathered(3)
	cancel()
	c.ends([]chan string{end}, "unknown context canceled")
	request := <-c.arrived
	if !slices.Equal(request.ids, ids) {
		t.Error(request.ids)
	}
	request.with(200, wonLine(ids[0]), wonLine(ids[1]), wonLine(ids[2]))
	c.ends(ends, "committed")
}

func TestAnIdleGroupIsForgotten(t *testing.T) {
	c, first, _, end := withOneInFlight(t)
	ids, ends := c.gathered(1)
	first.with(200, wonLine(first.ids[0]))
	(<-c.arrived).with(200, wonLine(ids[0]))
	c.ends(append(ends, end), "committed")
	for c.client.commits.groupCount() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// Otherwise batches would alternate between two halves of the callers.
func TestCallersThatWereJustAnsweredAreInTheNextBatch(t *testing.T) {
	nextBatches(t, time.Hour)
}

func TestCallersThatWereAnsweredSlowlyAreInTheNextBatch(t *testing.T) {
	nextBatches(t, 0)
}

// nextBatches submits items of 8 callers, and expects that many batches contain all of them. The given head start
// applies from the second request on.
func nextBatches(t *testing.T, headStart time.Duration) {
	t.Helper()
	// With one processor, a goroutine that yields lets all others run first, whatever the load of the machine.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const callers, rounds = 8, 50
	complete := 0
	c := &coalescer[int, int]{bounds: bounds{inFlight: 2, headStart: time.Hour, items: 100, bytes: 100}}
	c.sendOne = func(_ context.Context, item int) int {
		// Until all others are queued.
		for queued := 0; queued < callers && item < 0; time.Sleep(time.Millisecond) {
			c.mutex.Lock()
			queued = len(c.groups[""].queue)
			c.mutex.Unlock()
		}
		return item
	}
	c.sendBatch = func(items []int) []int {
		time.Sleep(time.Millisecond)
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.bounds.headStart = headStart
		if len(items) == callers {
			complete++
		}
		return slices.Clone(items)
	}
	var all sync.WaitGroup
	submit := func(item, rounds int) {
		defer all.Done()
		for range rounds {
			if reply, _, err := c.submit(t.Context(), terms{}, item); err != nil || reply != item {
				t.Error(reply, err)
			}
		}
	}
	all.Add(1 + callers)
	go submit(-1, 1)
	for c.groupCount() == 0 {
		time.Sleep(time.Millisecond)
	}
	for caller := range callers {
		go submit(caller, rounds)
	}
	all.Wait()
	if complete < rounds/5 {
		t.Errorf("of %d batches, %d have all callers", rounds, complete)
	}
}

func (c *coalescer[Item, Reply]) groupCount() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(c.groups)
}
