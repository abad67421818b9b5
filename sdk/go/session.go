package tribunal

import (
	"maps"
	"slices"
	"sync"
)

// session has the latest commit of a client to each store, so that its later transactions see it.
type session struct {
	mutex  sync.Mutex
	latest map[string]commitToken
}

type commitToken struct {
	epoch Epoch
	token string
}

// record records a commit. Commits may be recorded in any order.
func (s *session) record(committed *Committed) {
	if committed.Session == "" {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.latest == nil {
		s.latest = map[string]commitToken{}
	}
	for store := range committed.LSN {
		if s.latest[store].epoch < committed.Epoch {
			s.latest[store] = commitToken{committed.Epoch, committed.Session}
		}
	}
}

// forget forgets a token that the service does not know, and those of the epochs after it: its log was replaced by one
// that does not reach them.
func (s *session) forget(token string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, refused := range s.latest {
		if refused.token == token {
			maps.DeleteFunc(s.latest, func(_ string, known commitToken) bool { return known.epoch >= refused.epoch })
			return
		}
	}
}

// epochOf returns the epoch of the latest commit to a store; 0 if there is none.
func (s *session) epochOf(store string) Epoch {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.latest[store].epoch
}

// token returns the token of the latest commit to these stores, or to any store if none is named; empty if there is
// none.
func (s *session) token(stores []string) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	latest := commitToken{}
	for store, known := range s.latest {
		if (len(stores) == 0 || slices.Contains(stores, store)) && latest.epoch < known.epoch {
			latest = known
		}
	}
	return latest.token
}
