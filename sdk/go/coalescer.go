package tribunal

import (
	"context"
	"slices"
	"sync"
)

// bounds limit the requests of one group in flight.
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

	mutex sync.Mutex
	// groups are those with a request in flight, by key.
	groups map[string]*group[Item, Reply]
}

// Only items of the same group share a request. Each group has a queue and limits of its own.
type group[Item, Reply any] struct {
	key      string
	inFlight int
	queue    []*entry[Item, Reply]
}

// terms are the conditions for putting an item into a batch.
type terms struct {
	// group is the key of the item's group.
	group string
	// Two items with the same id are never put into the same batch; an empty id is none.
	id string
	// bytes that the item takes up in a request.
	bytes int
}

type entry[Item, Reply any] struct {
	terms
	item Item
	// reply is buffered, so that a cancelled caller does not block the batch.
	reply chan Reply
}

// submit sends an item, by itself or in a batch, and returns its reply. The only error is the context's; an item that was
// already in a batch is still sent.
func (c *coalescer[Item, Reply]) submit(ctx context.Context, terms terms, item Item) (Reply, error) {
	c.mutex.Lock()
	own := c.groups[terms.group]
	if own == nil {
		own = &group[Item, Reply]{key: terms.group}
		if c.groups == nil {
			c.groups = map[string]*group[Item, Reply]{}
		}
		c.groups[terms.group] = own
	}
	if own.inFlight < c.bounds.inFlight {
		own.inFlight++
		c.mutex.Unlock()
		defer c.release(own)
		return c.sendOne(ctx, item), nil
	}
	one := &entry[Item, Reply]{terms, item, make(chan Reply, 1)}
	own.queue = append(own.queue, one)
	c.mutex.Unlock()
	select {
	case reply := <-one.reply:
		return reply, nil
	case <-ctx.Done():
		c.withdraw(own, one)
		var none Reply
		return none, ctx.Err()
	}
}

// withdraw removes an item from its queue, if it is still there.
func (c *coalescer[Item, Reply]) withdraw(from *group[Item, Reply], gone *entry[Item, Reply]) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	from.queue = slices.DeleteFunc(from.queue, func(one *entry[Item, Reply]) bool { return one == gone })
}

// release gives up a place among the requests in flight, or uses it for the next batch if items are queued.
func (c *coalescer[Item, Reply]) release(of *group[Item, Reply]) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(of.queue) == 0 {
		if of.inFlight--; of.inFlight == 0 {
			delete(c.groups, of.key)
		}
		return
	}
	go func() {
		defer c.release(of)
		batch := c.nextBatch(of)
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
func (c *coalescer[Item, Reply]) nextBatch(of *group[Item, Reply]) []*entry[Item, Reply] {
	c.mutex.Lock()
	defer c.mutex.Unlock()
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
