package tribunal

import (
	"context"
	"slices"
	"sync"
)

// bounds limit what is in flight.
type bounds struct {
	// flights is how many requests are in flight at a time.
	flights int
	// items and bytes are those of one request.
	items, bytes int
}

// A coalescer gathers requests that wait for a free flight, and sends them together. It knows nothing of what they ask
// for, and never repeats one.
//
// A request that finds a free flight leaves at once and alone: there is no timer. Each caller awaits its own reply, so
// the requests of one session keep their order.
type coalescer[Item, Reply any] struct {
	bounds bounds
	// alone sends an item on behalf of its caller; it ends with the caller's context.
	alone func(context.Context, Item) Reply
	// together sends what was gathered: one reply per item, in order.
	together func([]Item) []Reply

	mutex   sync.Mutex
	flights int
	queue   []*waiting[Item, Reply]
}

type waiting[Item, Reply any] struct {
	id    string
	item  Item
	bytes int
	// reply has room for the reply, so that a caller that was cancelled holds up no other.
	reply chan Reply
}

// ask sends an item, alone or with others, and returns its reply. Two items with one id never leave together. The error
// is that of the context; if the item had left, it arrives all the same.
func (c *coalescer[Item, Reply]) ask(ctx context.Context, id string, item Item, bytes int) (Reply, error) {
	c.mutex.Lock()
	if c.flights < c.bounds.flights {
		c.flights++
		c.mutex.Unlock()
		defer c.land()
		return c.alone(ctx, item), nil
	}
	one := &waiting[Item, Reply]{id, item, bytes, make(chan Reply, 1)}
	c.queue = append(c.queue, one)
	c.mutex.Unlock()
	select {
	case reply := <-one.reply:
		return reply, nil
	case <-ctx.Done():
		c.leave(one)
		var none Reply
		return none, ctx.Err()
	}
}

// leave takes an item out of the queue, if it is still there.
func (c *coalescer[Item, Reply]) leave(gone *waiting[Item, Reply]) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.queue = slices.DeleteFunc(c.queue, func(one *waiting[Item, Reply]) bool { return one == gone })
}

// land ends a flight, and sends what has gathered with the next one.
func (c *coalescer[Item, Reply]) land() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(c.queue) == 0 {
		c.flights--
		return
	}
	go func() {
		defer c.land()
		crew := c.next()
		if len(crew) == 0 {
			return
		}
		items := make([]Item, len(crew))
		for at, one := range crew {
			items[at] = one.item
		}
		for at, reply := range c.together(items) {
			crew[at].reply <- reply
		}
	}()
}

// next takes what leaves next: the oldest, within the bounds, each id once.
func (c *coalescer[Item, Reply]) next() []*waiting[Item, Reply] {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var crew, rest []*waiting[Item, Reply]
	ids, bytes := map[string]bool{}, 0
	for at, one := range c.queue {
		if len(crew) == c.bounds.items || len(crew) > 0 && bytes+one.bytes > c.bounds.bytes {
			rest = append(rest, c.queue[at:]...)
			break
		}
		if ids[one.id] {
			rest = append(rest, one)
			continue
		}
		ids[one.id] = true
		crew = append(crew, one)
		bytes += one.bytes
	}
	c.queue = rest
	return crew
}
