package tribunal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// RetryPolicy bounds retries. Waits are exponential with full jitter.
type RetryPolicy struct {
	// AttemptsMax bounds the number of attempts; 1 disables retries; 0 means 50.
	AttemptsMax int
	// WaitMin bounds the first wait; the bound doubles with each further one; 0 means 1 ms.
	WaitMin time.Duration
	// WaitMax bounds the longest wait; 0 means 200 ms.
	WaitMax time.Duration
}

const askedMax = 30 * time.Second

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.AttemptsMax == 0 {
		p.AttemptsMax = 50
	}
	if p.WaitMin == 0 {
		p.WaitMin = time.Millisecond
	}
	if p.WaitMax == 0 {
		p.WaitMax = 200 * time.Millisecond
	}
	return p
}

// step draws the wait after the failed-th failed attempt.
func (p RetryPolicy) step(failed int) time.Duration {
	bound := p.WaitMax
	if doublings := min(failed-1, 16); p.WaitMin < p.WaitMax>>doublings {
		bound = p.WaitMin << doublings
	}
	// The whole step is random, so that the losers of one conflict do not collide again.
	return time.Duration(rand.Int64N(int64(bound) + 1))
}

// wait draws that wait in addition to the one that the service requested; false if that attempt was the last.
func (p RetryPolicy) wait(failed int, asked time.Duration) (time.Duration, bool) {
	if failed >= p.AttemptsMax {
		return 0, false
	}
	return min(asked, askedMax) + p.step(failed), true
}

// gaveUp is the error of a call whose context has ended: the context's error, and the text of the preceding attempt's
// failure, if there was one. It does not wrap that failure, which may imply that the request can be repeated.
func gaveUp(ctx context.Context, reason error) error {
	if reason == nil || errors.Is(reason, ctx.Err()) {
		return ctx.Err()
	}
	return fmt.Errorf("%w; the attempt before: %v", ctx.Err(), reason)
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
