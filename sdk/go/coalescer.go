package tribunal

import (
	"context"
	"slices"
	"sync"
)

// bounds limit the requests in flight.
type bounds struct {
	// inFlight is the maximum number of requests in flight at the same time.
	inFlight int
	// items and bytes limit one request.
	items, bytes int
}

// A coalescer limits how many requests are in flight; items that exceed the limit are queued and sent as one batch. It
// does not interpret items, and never retries one.
//
// There is no timer: below the limit an item is sent at once, by itself. Callers wait for their own replies, so the
// requests of one session stay in order.
type coalescer[Item, Reply any] struct {
	bounds bounds
	// sendOne sends an item on behalf of its caller, within the caller's context.
	sendOne func(context.Context, Item) Reply
	// sendBatch returns one reply per item, in order.
	sendBatch func([]Item) []Reply

	mutex    sync.Mutex
	inFlight int
	queue    []*entry[Item, Reply]
}

type entry[Item, Reply any] struct {
	id    string
	item  Item
	bytes int
	// reply is buffered, so that a cancelled caller does not block the batch.
	reply chan Reply
}

// submit sends an item, by itself or in a batch, and returns its reply. Two items with the same id are never put into the
// same batch. The only error is the context's; an item that was already in a batch is still sent.
func (c *coalescer[Item, Reply]) submit(ctx context.Context, id string, item Item, bytes int) (Reply, error) {
	c.mutex.Lock()
	if c.inFlight < c.bounds.inFlight {
		c.inFlight++
		c.mutex.Unlock()
		defer c.release()
		return c.sendOne(ctx, item), nil
	}
	one := &entry[Item, Reply]{id, item, bytes, make(chan Reply, 1)}
	c.queue = append(c.queue, one)
	c.mutex.Unlock()
	select {
	case reply := <-one.reply:
		return reply, nil
	case <-ctx.Done():
		c.withdraw(one)
		var none Reply
		return none, ctx.Err()
	}
}

// withdraw removes an item from the queue, if it is still there.
func (c *coalescer[Item, Reply]) withdraw(gone *entry[Item, Reply]) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.queue = slices.DeleteFunc(c.queue, func(one *entry[Item, Reply]) bool { return one == gone })
}

// release gives up a place among the requests in flight, or uses it for the next batch if items are queued.
func (c *coalescer[Item, Reply]) release() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(c.queue) == 0 {
		c.inFlight--
		return
	}
	go func() {
		defer c.release()
		batch := c.nextBatch()
		if len(batch) == 0 {
			return
		}
		items := make([]Item, len(batch))
		for at, one := range batch {
			items[at] = one.item
		}
		for at, reply := range c.sendBatch(items) {
			batch[at].reply <- reply
		}
	}()
}

// nextBatch takes the next batch off the queue: the oldest items, within the bounds, each id once.
func (c *coalescer[Item, Reply]) nextBatch() []*entry[Item, Reply] {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var batch, rest []*entry[Item, Reply]
	ids, bytes := map[string]bool{}, 0
	for at, one := range c.queue {
		if len(batch) == c.bounds.items || len(batch) > 0 && bytes+one.bytes > c.bounds.bytes {
			rest = append(rest, c.queue[at:]...)
			break
		}
		if ids[one.id] {
			rest = append(rest, one)
			continue
		}
		ids[one.id] = true
		batch = append(batch, one)
		bytes += one.bytes
	}
	c.queue = rest
	return batch
}
