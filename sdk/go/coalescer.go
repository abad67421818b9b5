package tribunal

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// headStart is how long a request is in flight before another may follow: the longest time that an item waits because
// of a slow response.
const headStart = 5 * time.Millisecond

// queueingMax is the longest time that just-answered callers get to queue their next items. They need microseconds,
// unless others that never stop keep the queue growing.
const queueingMax = 5 * time.Millisecond

// bounds limits the requests of one group in flight.
type bounds struct {
	// inFlight is the maximum number of requests in flight at the same time.
	inFlight  int
	headStart time.Duration
	// items and bytes limit one request.
	items, bytes int
}

// A coalescer limits how many requests are in flight; items that exceed the limit are queued and sent as one batch. It
// does not interpret items, and never retries one.
//
// While nothing is in flight, an item is sent at once, by itself. A second request follows only if the first takes
// longer than the head start: one batch of all queued items costs less than two, and its commits conflict less, because
// their callers know the outcomes of the preceding batch. Callers wait for their own replies, so the requests of one
// session stay in order. Batches are sent by goroutines of their own, which no caller can cancel.
type coalescer[Item, Reply any] struct {
	bounds bounds
	// sendOne sends an item on behalf of its caller, within the caller's context.
	sendOne func(context.Context, Item) Reply
	// sendBatch returns one reply per item, in order.
	sendBatch func([]Item) []Reply

	mutex sync.Mutex
	// groups has the groups with a request in flight, by key.
	groups map[string]*group[Item, Reply]
}

// group is a queue with limits of its own. Only items of the same group share a request.
type group[Item, Reply any] struct {
	key      string
	inFlight int
	// gathering counts completed requests whose callers may be about to queue their next items. Nothing is sent while
	// there are any.
	gathering int
	// sentAt is when the last request was sent.
	sentAt time.Time
	// timer fires when another request may follow; nil if no timer runs.
	timer *time.Timer
	queue []*entry[Item, Reply]
}

// terms are the conditions for putting an item into a batch.
type terms struct {
	// group is the key of the item's group.
	group string
	// id is empty or identifies the item: two items with the same id are never put into the same batch.
	id string
	// bytes that the item takes up in a request.
	bytes int
	// until is when the caller gives up; zero means never.
	until time.Time
}

// errLate is the error of a caller that has given up.
var errLate = errors.New("the request has not ended in time, because earlier ones have not")

type entry[Item, Reply any] struct {
	terms
	item Item
	// reply is buffered, so that a cancelled caller does not block the batch.
	reply chan Reply
}

// submit sends an item, by itself or in a batch, and returns its reply. The only errors are the context's and errLate.
// It then also reports whether the item was already in a batch, which is sent nevertheless.
func (c *coalescer[Item, Reply]) submit(ctx context.Context, terms terms, item Item) (reply Reply, sent bool, err error) {
	c.mutex.Lock()
	own := c.groups[terms.group]
	if own == nil {
		own = &group[Item, Reply]{key: terms.group}
		if c.groups == nil {
			c.groups = map[string]*group[Item, Reply]{}
		}
		c.groups[terms.group] = own
	}
	if own.inFlight == 0 {
		own.departs()
		c.mutex.Unlock()
		defer c.release(own)
		return c.sendOne(ctx, item), true, nil
	}
	one := &entry[Item, Reply]{terms, item, make(chan Reply, 1)}
	own.queue = append(own.queue, one)
	c.dispatch(own)
	c.mutex.Unlock()
	var late <-chan time.Time
	if !terms.until.IsZero() {
		timer := time.NewTimer(time.Until(terms.until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case reply := <-one.reply:
		return reply, true, nil
	case <-late:
		return reply, !c.withdraw(own, one), errLate
	case <-ctx.Done():
		return reply, !c.withdraw(own, one), ctx.Err()
	}
}

// withdraw removes an item from its queue. It returns false if it is no longer there.
func (c *coalescer[Item, Reply]) withdraw(from *group[Item, Reply], gone *entry[Item, Reply]) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	queued := len(from.queue)
	from.queue = slices.DeleteFunc(from.queue, func(one *entry[Item, Reply]) bool { return one == gone })
	return len(from.queue) < queued
}

// departs counts a request that is sent now.
func (g *group[Item, Reply]) departs() {
	g.inFlight++
	g.sentAt = time.Now()
}

// release gives up an in-flight place.
func (c *coalescer[Item, Reply]) release(of *group[Item, Reply]) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	of.inFlight--
	c.dispatch(of)
	if of.inFlight > 0 {
		return
	}
	delete(c.groups, of.key)
	if of.timer != nil {
		of.timer.Stop()
	}
}

// dispatch sends the queued items as soon as a request may follow those in flight. The caller holds the mutex.
func (c *coalescer[Item, Reply]) dispatch(of *group[Item, Reply]) {
	for of.gathering == 0 && len(of.queue) > 0 && of.inFlight < c.bounds.inFlight {
		wait := c.bounds.headStart - time.Since(of.sentAt)
		if of.inFlight > 0 && wait > 0 {
			c.dispatchAfter(wait, of)
			return
		}
		of.departs()
		go c.send(of, c.nextBatch(of))
	}
}

func (c *coalescer[Item, Reply]) dispatchAfter(wait time.Duration, of *group[Item, Reply]) {
	if of.timer != nil {
		return
	}
	of.timer = time.AfterFunc(wait, func() {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		of.timer = nil
		c.dispatch(of)
	})
}

// send sends a batch and gives each caller its reply.
func (c *coalescer[Item, Reply]) send(of *group[Item, Reply], batch []*entry[Item, Reply]) {
	defer c.release(of)
	items := make([]Item, len(batch))
	for at, one := range batch {
		items[at] = one.item
	}
	replies := c.sendBatch(items)
	c.gathers(of, 1)
	defer c.gathers(of, -1)
	for at, reply := range replies {
		batch[at].reply <- reply
	}
	c.letCallersQueue(of)
}

func (c *coalescer[Item, Reply]) gathers(of *group[Item, Reply], change int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	of.gathering += change
}

// letCallersQueue lets callers that just got their replies queue their next items, so that the next batch includes
// them: it yields until the queue no longer grows, or a batch is full.
func (c *coalescer[Item, Reply]) letCallersQueue(of *group[Item, Reply]) {
	until := time.Now().Add(queueingMax)
	for queued, unchanged := 0, 0; unchanged < 2 && queued < c.bounds.items && time.Now().Before(until); {
		runtime.Gosched()
		c.mutex.Lock()
		now := len(of.queue)
		c.mutex.Unlock()
		if unchanged++; now > queued {
			unchanged = 0
		}
		queued = now
	}
}

// nextBatch takes the next batch off the queue: the oldest items, within the bounds, each id once. The caller holds
// the mutex.
func (c *coalescer[Item, Reply]) nextBatch(of *group[Item, Reply]) []*entry[Item, Reply] {
	var batch, rest []*entry[Item, Reply]
	ids, bytes := map[string]bool{}, 0
	for at, one := range of.queue {
		if len(batch) == c.bounds.items || len(batch) > 0 && bytes+one.bytes > c.bounds.bytes {
			rest = append(rest, of.queue[at:]...)
			break
		}
		if one.id != "" && ids[one.id] {
			rest = append(rest, one)
			continue
		}
		ids[one.id] = true
		batch = append(batch, one)
		bytes += one.bytes
	}
	of.queue = rest
	return batch
}
