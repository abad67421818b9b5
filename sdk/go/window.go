package tribunal

import (
	"context"
	"slices"
	"sync"
)

// A window bounds commits that wait for their verdicts, in number and in bytes. A commit larger than the bound enters
// when it is alone. Commits enter in order of arrival.
type window struct {
	commitsMax, bytesMax int

	mutex          sync.Mutex
	commits, bytes int
	queue          []*entrant
}

type entrant struct {
	bytes   int
	entered chan struct{}
}

// enter waits for room, or for the end of the context.
func (w *window) enter(ctx context.Context, bytes int) error {
	one := &entrant{bytes, make(chan struct{})}
	w.mutex.Lock()
	w.queue = append(w.queue, one)
	w.admit()
	w.mutex.Unlock()
	select {
	case <-one.entered:
		return nil
	case <-ctx.Done():
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	select {
	case <-one.entered:
		// The commit entered meanwhile.
		w.commits, w.bytes = w.commits-1, w.bytes-bytes
	default:
		w.queue = slices.DeleteFunc(w.queue, func(other *entrant) bool { return other == one })
	}
	w.admit()
	return ctx.Err()
}

// leave makes room.
func (w *window) leave(bytes int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.commits, w.bytes = w.commits-1, w.bytes-bytes
	w.admit()
}

func (w *window) admit() {
	for len(w.queue) > 0 {
		first := w.queue[0]
		if w.commits > 0 && (w.commits == w.commitsMax || w.bytes+first.bytes > w.bytesMax) {
			return
		}
		w.commits, w.bytes = w.commits+1, w.bytes+first.bytes
		w.queue = w.queue[1:]
		close(first.entered)
	}
}
