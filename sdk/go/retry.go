package tribunal

import (
	"context"
	"math/rand/v2"
	"time"
)

// RetryPolicy bounds repetition. Waits are exponential with full jitter.
type RetryPolicy struct {
	// AttemptsMax bounds the attempts in all; 1 tries once; 0 means 50.
	AttemptsMax int
	// WaitMin bounds the first wait, each further one doubles; 0 means 1 ms.
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

// step draws the wait behind the failed-th failed attempt.
func (p RetryPolicy) step(failed int) time.Duration {
	bound := min(p.WaitMin<<min(failed-1, 16), p.WaitMax)
	// All of it is random, so that losers of one conflict do not meet again.
	return time.Duration(rand.Int64N(int64(bound) + 1))
}

// wait draws the same, never shorter than what the service asked for; false when that attempt was the last.
func (p RetryPolicy) wait(failed int, asked time.Duration) (time.Duration, bool) {
	if failed >= p.AttemptsMax {
		return 0, false
	}
	return min(asked, askedMax) + p.step(failed), true
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
