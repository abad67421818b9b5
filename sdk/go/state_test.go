package tribunal

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

const (
	stateHead = `{"event":"state","store":"kv","kind":"rows","log":"` + someLog + `","lsn":"7"}` + "\n"
	stateRows = `{"key":"a","value":1,"version":"8"}` + "\n" + `{"event":"later"}` + "\n" + `{"key_b64":"/w==","value":2,"version":"8"}` + "\n"
	stateEnd  = `{"event":"end","rows":"2"}` + "\n"
)

// readState returns the keys of a state.
func readState(ctx context.Context, t *testing.T, scripts ...logScript) (string, error) {
	t.Helper()
	client, err := New(newLogService(t, scripts...).URL, Options{Retry: RetryPolicy{AttemptsMax: 3}})
	if err != nil {
		t.Fatal(err)
	}
	state, err := client.State(ctx, "kv")
	if err != nil {
		return "", err
	}
	if state.LSN != 7 || state.Log != someLog || state.Store != "kv" || state.Kind != "rows" {
		t.Errorf("%+v", state)
	}
	keys := ""
	for row, err := range state.All(ctx) {
		if err != nil {
			return keys, err
		}
		keys += row.Key
	}
	if _, err := state.Next(ctx); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	return keys, nil
}

func TestAStateIsWholeOrAnError(t *testing.T) {
	down, broken := logScript{status: 503, code: "overloaded"}, logScript{pieces: []string{stateHead[:20]}, after: "break"}
	keys, err := readState(t.Context(), t, down, broken, logScript{pieces: strings.SplitAfter(stateHead+stateRows+stateEnd, ",")})
	if keys != "a\xff" || err != nil {
		t.Errorf("%q, %v", keys, err)
	}
	failed := `{"event":"failed","problem":` + problemText(503, "unavailable") + "}\n"
	for _, script := range []logScript{
		{pieces: []string{stateHead + stateRows}},
		{pieces: []string{stateHead + stateRows}, after: "break"},
		{pieces: []string{stateHead + stateRows[:50]}},
		{pieces: []string{stateHead + stateRows + failed}},
	} {
		var unavailable *Unavailable
		if _, err := readState(t.Context(), t, script); !errors.As(err, &unavailable) {
			t.Errorf("%v: %v", script, err)
		}
	}
	for _, text := range []string{
		stateHead + stateEnd, stateHead + stateRows + `{"event":"end"}` + "\n", stateHead + "x\n", stateHead + "{}\n",
		stateHead + `{"event":"failed"}` + "\n", stateRows + stateEnd, "{}\n",
	} {
		var misbehaved *ServerMisbehaved
		if _, err := readState(t.Context(), t, logScript{pieces: []string{text}}); !errors.As(err, &misbehaved) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAContextEndsAState(t *testing.T) {
	client, err := New(newLogService(t, logScript{pieces: []string{stateHead + stateRows}, after: "stay"}).URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	state, err := client.State(ctx, "kv")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := state.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	for range 2 {
		if _, err := state.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	state.Close()
	if _, err := state.Next(t.Context()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAClosedStateIsAMisuse(t *testing.T) {
	client, err := New(newLogService(t, logScript{pieces: []string{stateHead + stateRows}, after: "stay"}).URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	state, err := client.State(t.Context(), "kv")
	if err != nil {
		t.Fatal(err)
	}
	state.Close()
	var misuse *Misuse
	if _, err := state.Next(t.Context()); !errors.As(err, &misuse) {
		t.Error(err)
	}
}
