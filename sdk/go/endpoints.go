package tribunal

import (
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// endpoints has the endpoints of one service, all equal: which one is in use, and which ones failed recently.
//
// One endpoint is in use until it fails. The next one in the list then replaces it; an endpoint that failed is skipped
// until its cool-down has passed, unless all of them have failed.
type endpoints struct {
	// urls is not empty.
	urls []string
	// timeout is how long an endpoint may take to answer while another one has not been tried.
	timeout  time.Duration
	coolDown time.Duration

	mutex    sync.Mutex
	inUse    int
	failedAt []time.Time
}

// newEndpoints splits URLs at commas. A URL that occurs twice counts once.
func newEndpoints(servers []string, timeout, coolDown time.Duration) (*endpoints, error) {
	e := &endpoints{timeout: timeout, coolDown: coolDown}
	for _, server := range servers {
		for one := range strings.SplitSeq(server, ",") {
			one = strings.TrimRight(strings.TrimSpace(one), "/")
			parsed, err := url.Parse(one)
			switch {
			case err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https",
				parsed.RawQuery != "" || parsed.Fragment != "":
				return nil, misuse("%q is not of the form http://host:port or https://host:port", one)
			case strings.HasSuffix(parsed.Path, "/v1"):
				return nil, misuse("%q ends with /v1, which the client adds: leave it out", one)
			}
			if !slices.Contains(e.urls, one) {
				e.urls = append(e.urls, one)
			}
		}
	}
	if len(e.urls) == 0 {
		return nil, misuse("a client needs the URL of at least one endpoint")
	}
	e.failedAt = make([]time.Time, len(e.urls))
	return e, nil
}

// current returns the endpoint in use.
func (e *endpoints) current() int {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.inUse
}

// choose returns the endpoint to try now among the allowed ones: the one in use or the first one after it, preferably
// one that has not failed recently.
func (e *endpoints) choose(isAllowed func(int) bool) (int, bool) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.chosen(isAllowed)
}

func (e *endpoints) chosen(isAllowed func(int) bool) (int, bool) {
	chosen, found := 0, false
	for n := range e.urls {
		at := (e.inUse + n) % len(e.urls)
		switch {
		case !isAllowed(at):
		case !e.cools(at):
			return at, true
		case !found:
			chosen, found = at, true
		}
	}
	return chosen, found
}

// hasRested reports whether an allowed endpoint has not failed recently.
func (e *endpoints) hasRested(isAllowed func(int) bool) bool {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	for at := range e.urls {
		if isAllowed(at) && !e.cools(at) {
			return true
		}
	}
	return false
}

// failed records that an endpoint failed: another one, if there is any, is in use from now on.
func (e *endpoints) failed(at int) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.failedAt[at] = time.Now()
	if e.inUse != at {
		return
	}
	if other, found := e.chosen(func(other int) bool { return other != at }); found {
		e.inUse = other
	}
}

// works records that an endpoint has answered. It is in use from now on if the one in use has failed.
func (e *endpoints) works(at int) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.failedAt[at] = time.Time{}
	if e.cools(e.inUse) {
		e.inUse = at
	}
}

func (e *endpoints) cools(at int) bool {
	return !e.failedAt[at].IsZero() && time.Since(e.failedAt[at]) < e.coolDown
}
