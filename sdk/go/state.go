package tribunal

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"runtime"
	"time"

	"tribunal.internal/client/wire"
)

// State is the state of a store at a position of its log, from which a copy starts: the log continues after LSN. Its
// rows are read as Next returns them. It must be used by one goroutine at a time.
type State struct {
	_     noCopy
	Store string
	// Kind is where the rows are: "rows" if they follow, "storage" if they are in the store's own storage, at LSN or
	// later, and "log" if the store is only its log, which is complete.
	Kind string
	// LSN is the position that the rows reflect: After of the log reader that continues.
	LSN LSN
	// Log is the log that LSN belongs to: Log of the log reader that continues.
	Log string

	count uint64
	// ended is the error that Next returns from now on.
	ended error
	// open is separate from the state, so that it can be closed once the state is dropped.
	open *openedLog
}

// stateLine is a line of a state image: a row or an event.
type stateLine struct {
	wire.Row
	Event   string   `json:"event"`
	Store   string   `json:"store"`
	Kind    string   `json:"kind"`
	Log     string   `json:"log"`
	Lsn     string   `json:"lsn"`
	Rows    string   `json:"rows"`
	Problem *Problem `json:"problem"`
}

// State reads the state of a store, to start or restart a copy. Continue with [Client.Log], with the state's LSN and
// Log. It retries while the service is unavailable, for at most the client's Timeout. Close the state, unless Next has
// returned an error; a loop over [State.All] closes it.
func (c *Client) State(ctx context.Context, store string) (*State, error) {
	if err := checkName("name of a store", store); err != nil {
		return nil, err
	}
	until := time.Now().Add(c.options.Timeout)
	var before error
	for failed := 1; ; failed++ {
		state, err := c.stateAt(ctx, until, store)
		var unavailable *Unavailable
		switch {
		case err == nil:
			return state, nil
		case ctx.Err() != nil:
			return nil, gaveUp(ctx, before)
		case !errors.As(err, &unavailable):
			return nil, err
		}
		pause, again := c.options.Retry.wait(failed, unavailable.RetryAfter())
		if !again || !time.Now().Add(pause).Before(until) {
			return nil, err
		}
		if sleep(ctx, pause) != nil {
			return nil, gaveUp(ctx, err)
		}
		before = err
	}
}

// stateAt opens an image and reads its first line.
func (c *Client) stateAt(ctx context.Context, until time.Time, store string) (*State, error) {
	open := func(ctx context.Context, at int, ndjson wire.RequestEditorFn) (*response, error) {
		return c.logs[at].GetState(ctx, store, ndjson)
	}
	stream, err := c.openStream(ctx, until, "state image", c.options.Timeout, open)
	if err != nil {
		return nil, err
	}
	state := &State{open: &openedLog{stream}}
	head, err := state.line(ctx, until)
	if err == nil && head.Event != "state" {
		err = misbehaved("a state image that begins with event %q", head.Event)
	}
	if err == nil {
		fields := reader{}
		state.Store, state.Kind, state.Log, state.LSN = head.Store, head.Kind, head.Log, LSN(fields.number(&head.Lsn))
		err = fields.err
	}
	if err != nil {
		state.Close()
		return nil, err
	}
	runtime.AddCleanup(state, (*openedLog).close, state.open)
	return state, nil
}

// Next returns the next row, in no particular order, and io.EOF after the last one. Any other error means that rows are
// missing: read the state from the start again.
func (s *State) Next(ctx context.Context) (*Row, error) {
	if s.ended != nil {
		return nil, s.ended
	}
	row, err := s.next(ctx)
	if err != nil {
		s.ended = err
		s.open.close()
	}
	return row, err
}

func (s *State) next(ctx context.Context) (*Row, error) {
	for {
		line, err := s.line(ctx, time.Time{})
		if err != nil {
			return nil, err
		}
		switch line.Event {
		case "":
			row, err := rowOf(&line.Row)
			s.count++
			return &row, err
		case "failed":
			if line.Problem == nil {
				return nil, misbehaved("a state image has failed without a problem document")
			}
			return nil, errorOf(*line.Problem)
		case "end":
			fields := reader{}
			if rows := fields.number(&line.Rows); fields.err != nil || rows != s.count {
				return nil, misbehaved("a state image with %d rows, not %q", s.count, line.Rows)
			}
			return nil, io.EOF
		}
		// Unknown events of a newer service are skipped.
	}
}

func (s *State) line(ctx context.Context, until time.Time) (*stateLine, error) {
	text, err := s.open.stream.text(ctx, until)
	if err != nil {
		return nil, err
	}
	line := new(stateLine)
	if err := json.Unmarshal(text, line); err != nil {
		return nil, misbehaved("a line of the state image cannot be parsed: %v", err)
	}
	return line, nil
}

// All yields the rows, and closes the state at the end of the loop. An error means that rows are missing.
func (s *State) All(ctx context.Context) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		defer s.Close()
		for {
			row, err := s.Next(ctx)
			if err == io.EOF || !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the stream. Next then returns a *Misuse, unless it has returned an error before.
func (s *State) Close() {
	if s.ended == nil {
		s.ended = misuse("the state is closed: request another one")
	}
	s.open.close()
}
