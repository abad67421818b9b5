package tribunal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// silentEndpoint returns the URL of a service that accepts connections and does not answer.
func silentEndpoint(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return "http://" + listener.Addr().String()
}

// answering returns the URL of a service that answers each request with the given bytes.
func answering(t *testing.T, bytes string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = connection.Read(make([]byte, 64<<10))
			_, _ = connection.Write([]byte(bytes))
			_ = connection.Close()
		}
	}()
	return "http://" + listener.Addr().String()
}

// readsOf has a read of each kind.
func readsOf(client *Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Row":    func(ctx context.Context) error { _, err := client.Row(ctx, "kv", "a"); return err },
		"Rows":   func(ctx context.Context) error { _, err := client.Rows(ctx, "kv", KeyRange{}); return err },
		"Ranges": func(ctx context.Context) error { _, err := client.ReadRanges(ctx, "kv", []KeyRange{{}}); return err },
		"Begin":  func(ctx context.Context) error { _, err := client.Begin(ctx, BeginOptions{}); return err },
		"Stores": func(ctx context.Context) error { _, err := client.Stores(ctx); return err },
		"State":  func(ctx context.Context) error { _, err := client.State(ctx, "kv"); return err },
		"Next": func(ctx context.Context) error {
			_, err := client.Log("kv", LogOptions{Wait: -1}).Next(ctx)
			return err
		},
	}
}

func TestTheTimeoutBoundsAReadAndAllOfItsRepetitions(t *testing.T) {
	for _, urls := range [][]string{{silentEndpoint(t)}, {silentEndpoint(t), silentEndpoint(t)}} {
		client, err := NewWithEndpoints(urls, Options{Timeout: 300 * time.Millisecond, IgnoreOwnWrites: true})
		if err != nil {
			t.Fatal(err)
		}
		for name, read := range readsOf(client) {
			begun := time.Now()
			err := read(t.Context())
			var unavailable *Unavailable
			// Fifty attempts would take 15 s.
			if took := time.Since(begun); !errors.As(err, &unavailable) || took < 200*time.Millisecond || took > 5*time.Second {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		}
	}
}

func TestTheTimeoutBoundsReadsThatWaitForOthers(t *testing.T) {
	client, err := New(silentEndpoint(t), Options{Timeout: 500 * time.Millisecond, IgnoreOwnWrites: true})
	if err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for range 12 {
		for _, read := range []string{"Row", "Begin"} {
			waiting.Add(1)
			go func() {
				defer waiting.Done()
				begun := time.Now()
				err := readsOf(client)[read](t.Context())
				var unavailable *Unavailable
				if took := time.Since(begun); !errors.As(err, &unavailable) || took > 5*time.Second {
					t.Errorf("%s: %v after %v", read, err, took)
				}
			}()
		}
		time.Sleep(10 * time.Millisecond)
	}
	waiting.Wait()
}

func TestNothingToReadNeedsNoRequest(t *testing.T) {
	client := clientOf(t, Options{}, deadEndpoint(t))
	if reads, err := client.ReadRows(t.Context(), "kv", nil); err != nil || len(reads.Rows) != 0 {
		t.Error(reads, err)
	}
	if reads, err := client.ReadRanges(t.Context(), "kv", nil); err != nil || len(reads.Ranges) != 0 {
		t.Error(reads, err)
	}
	var misuse *Misuse
	if _, err := client.ReadRows(t.Context(), "", nil); !errors.As(err, &misuse) {
		t.Error(err)
	}
}

func TestAnAddressWithTheWrongSchemeIsAMisuse(t *testing.T) {
	plain := newScripted(t, func(string, int) (int, string) { return 200, `{"stores":[]}` }, httptest.NewServer)
	for url, text := range map[string]string{
		strings.Replace(plain.URL, "http:", "https:", 1): "does the service speak TLS there? Is its address http://?",
		answering(t, "\x15\x03\x03\x00\x02\x02\x32"):     "does the service speak TLS there? Then use https://",
	} {
		client, err := New(url, Options{})
		if err != nil {
			t.Fatal(err)
		}
		reads := readsOf(client)
		reads["Run"] = func(ctx context.Context) error {
			_, err := client.Run(ctx, BeginOptions{}, func(context.Context, *Transaction) error { return nil })
			return err
		}
		reads["Follow"] = func(ctx context.Context) (err error) {
			for _, err = range client.Log("kv", LogOptions{}).Follow(ctx) {
			}
			return err
		}
		for name, read := range reads {
			var misuse *Misuse
			if err := read(t.Context()); !errors.As(err, &misuse) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s of %s: %v", name, url, err)
			}
		}
	}
}

func TestFollowOutlivesWhatEndsASingleCall(t *testing.T) {
	down := logScript{status: 503, code: "unavailable"}
	service := newLogService(t, down,
		down, down, logScript{pieces: []string{logBeat(2), logRecord(1)}, after: "break"},
		down, down, down, logScript{pieces: []string{logBeat(2), logRecord(2), logEnd("stopping")}},
		logScript{status: 410, code: "log_truncated"},
	)
	client, err := New(service.URL, Options{Retry: RetryPolicy{AttemptsMax: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var unavailable *Unavailable
	if _, err := client.Log("kv", LogOptions{}).Next(t.Context()); !errors.As(err, &unavailable) {
		t.Fatal(err)
	}
	var lsns []LSN
	var ended error
	for record, err := range client.Log("kv", LogOptions{}).Follow(t.Context()) {
		if ended = err; err == nil {
			lsns = append(lsns, record.LSN)
		}
	}
	if fmt.Sprint(lsns) != "[1 2]" || told(ended) != "mistake log_truncated" {
		t.Error(lsns, ended)
	}
}

func TestFollowGivesUpAfterTheTimeToReconnect(t *testing.T) {
	service := newLogService(t, logScript{pieces: []string{logBeat(1), logRecord(1)}, after: "break"})
	client := clientOf(t, Options{}, service.URL)
	begun, records := time.Now(), 0
	for _, err := range client.Log("kv", LogOptions{ReconnectFor: 300 * time.Millisecond}).Follow(t.Context()) {
		var unavailable *Unavailable
		if err == nil {
			records++
			service.Close()
		} else if !errors.As(err, &unavailable) {
			t.Error(err)
		}
	}
	if took := time.Since(begun); records != 1 || took > 5*time.Second {
		t.Error(records, took)
	}
	for _, err := range client.Log("kv", LogOptions{ReconnectFor: -1}).Follow(t.Context()) {
		var misuse *Misuse
		if !errors.As(err, &misuse) {
			t.Error(err)
		}
	}
	log, asked := client.Log("kv", LogOptions{}), int32(30_000)
	busy := &Unavailable{Problem: &Problem{RetryAfterMs: &asked}}
	for failed := range 60 {
		if pause, again := log.pause(failed+1, time.Time{}, busy); !again || pause != 2*time.Second {
			t.Error(failed, pause, again)
		}
	}
}

func TestFollowEndsAfterTheAttemptsOfAReadIfItHasReachedNoEndpoint(t *testing.T) {
	log := clientOf(t, Options{}, deadEndpoint(t)).Log("kv", LogOptions{})
	begun := time.Now()
	for _, err := range log.Follow(t.Context()) {
		var unavailable *Unavailable
		if !errors.As(err, &unavailable) {
			t.Error(err)
		}
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Error(took)
	}
}

func TestEachFollowHasTheTimeToReconnect(t *testing.T) {
	service := newLogService(t, logScript{status: 503, code: "unavailable"}, logScript{status: 410, code: "log_truncated"})
	log := clientOf(t, Options{}, service.URL).Log("kv", LogOptions{})
	// An earlier iteration ended during an outage.
	log.lostAt, log.reached = time.Now().Add(-time.Hour), true
	for _, err := range log.Follow(t.Context()) {
		if told(err) != "mistake log_truncated" {
			t.Error(err)
		}
	}
}

func TestFollowWaitsAlsoIfNextDoesNot(t *testing.T) {
	idle := logScript{pieces: []string{logBeat(1), logEnd("idle")}}
	service := newLogService(t, idle, logScript{status: 410, code: "log_truncated"})
	log := clientOf(t, Options{}, service.URL).Log("kv", LogOptions{Wait: -1})
	for _, err := range log.Follow(t.Context()) {
		if told(err) != "mistake log_truncated" {
			t.Error(err)
		}
	}
	if asked := service.requests(); len(asked) != 2 || strings.Contains(asked[0], "wait_ms=0&") {
		t.Error(asked)
	}
}

func TestAContextEndsFollowWhereverItWaits(t *testing.T) {
	service := newLogService(t, logScript{pieces: []string{logBeat(1)}, after: "stay"})
	for _, url := range []string{service.URL, silentEndpoint(t), deadEndpoint(t)} {
		client, err := New(url, Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		begun := time.Now()
		for _, err := range client.Log("kv", LogOptions{}).Follow(ctx) {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Error(url, took)
		}
	}
}

// A connection that was accepted and closed is not the end of a log, which is io.EOF.
func TestAConnectionThatIsClosedIsNotTheEndOfALog(t *testing.T) {
	client, err := New(answering(t, ""), Options{Retry: RetryPolicy{AttemptsMax: 3}})
	if err != nil {
		t.Fatal(err)
	}
	reader := client.Log("kv", LogOptions{Wait: -1})
	_, next := reader.Next(t.Context())
	ends := map[string]error{"Next": next}
	for _, err := range reader.All(t.Context()) {
		ends["All"] = err
	}
	for _, err := range reader.Follow(t.Context()) {
		ends["Follow"] = err
	}
	_, ends["State"] = client.State(t.Context(), "kv")
	for name, err := range ends {
		var unavailable *Unavailable
		if !errors.As(err, &unavailable) || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(ends) != 4 {
		t.Error(ends)
	}
}

func TestACommitThatMayHaveBeenTakenIsInDoubtWhateverTheAddressSpeaks(t *testing.T) {
	plain := newScripted(t, func(string, int) (int, string) { return 200, `{"stores":[]}` }, httptest.NewServer)
	over := answering(t, "\x15\x03\x03\x00\x02\x02\x32")
	noTLS := strings.Replace(answering(t, "no TLS"), "http:", "https:", 1)
	for url, isSent := range map[string]bool{over: true, noTLS: false} {
		client := clientOf(t, Options{NoCoalesce: true}, url)
		_, err := client.Commit(t.Context(), preparedOf(t, client))
		var unknown *OutcomeUnknown
		var misuse *Misuse
		if errors.As(err, &unknown) != isSent || errors.As(err, &misuse) == isSent {
			t.Errorf("%s: %v", url, err)
		}
	}
	client := clientOf(t, Options{}, strings.Replace(plain.URL, "http:", "https:", 1))
	stream := client.CommitStream()
	defer stream.Close()
	var misuse *Misuse
	if _, err := stream.Commit(t.Context(), preparedOf(t, client)); !errors.As(err, &misuse) {
		t.Error(err)
	}
}
