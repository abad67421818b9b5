package tribunal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const someLog = "8f14e45fceea167a5a36dedd4bea2543"

// logScript is the service's reaction to one request for the log.
type logScript struct {
	// status other than 0 refuses with the code.
	status int
	code   string
	// pieces are streamed, each flushed; then the stream ends, breaks, or stays open.
	pieces []string
	after  string
}

type logService struct {
	*httptest.Server
	mutex   sync.Mutex
	asked   []string
	written atomic.Int64
}

func newLogService(t *testing.T, scripts ...logScript) *logService {
	t.Helper()
	service := &logService{}
	service.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service.mutex.Lock()
		script := logScript{status: 404, code: "no_script"}
		if at := len(service.asked); at < len(scripts) {
			script = scripts[at]
		}
		service.asked = append(service.asked, r.URL.RawQuery+" "+r.Header.Get("Accept"))
		service.mutex.Unlock()
		if script.status != 0 {
			w.WriteHeader(script.status)
			_, _ = io.WriteString(w, problemText(script.status, script.code))
			return
		}
		for _, piece := range script.pieces {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			service.written.Add(int64(len(piece)))
		}
		switch script.after {
		case "break":
			panic(http.ErrAbortHandler)
		case "stay":
			<-r.Context().Done()
		}
	}))
	t.Cleanup(service.Close)
	return service
}

func (s *logService) reader(t *testing.T, options LogOptions) *LogReader {
	t.Helper()
	client, err := New(s.URL, Options{Retry: RetryPolicy{AttemptsMax: 3}})
	if err != nil {
		t.Fatal(err)
	}
	log := client.Log("kv", options)
	t.Cleanup(log.Close)
	return log
}

func (s *logService) requests() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.asked
}

func logRecord(lsn int) string { return logRecordOf(lsn, "välue") }

func logRecordOf(lsn int, value string) string {
	return fmt.Sprintf(`{"lsn":"%d","prev_lsn":"%d","epoch":"9","csn":"7","version":"8","txn_id":"t","store":"kv","writes":[{"op":"put","key":"a","value":"%s"}]}`+"\n", lsn, lsn-1, value)
}

func logBeat(head int) string {
	return fmt.Sprintf(`{"event":"heartbeat","log":"%s","next":"0","head_lsn":"%d"}`+"\n", someLog, head)
}

func logEnd(reason string) string {
	return fmt.Sprintf(`{"event":"end","log":"%s","next":"0","reason":"%s"}`+"\n", someLog, reason)
}

// next expects the record, or io.EOF for 0.
func next(t *testing.T, log *LogReader, lsn LSN) {
	t.Helper()
	record, err := log.Next(t.Context())
	if lsn == 0 && errors.Is(err, io.EOF) {
		return
	}
	if err != nil || record.LSN != lsn || log.Offset() != lsn {
		t.Fatalf("%+v %v instead of %d", record, err, lsn)
	}
}

func TestOneStreamHasAllRecordsHoweverItIsCutIntoPieces(t *testing.T) {
	text := logBeat(3) + logRecord(1) + logRecord(2) + logBeat(3) + logRecord(3) + logEnd("idle")
	var pieces []string
	for ; len(text) > 7; text = text[7:] {
		pieces = append(pieces, text[:7])
	}
	service := newLogService(t, logScript{pieces: append(pieces, text)})
	log := service.reader(t, LogOptions{Wait: 40 * time.Millisecond})
	for lsn := range 3 {
		next(t, log, LSN(lsn+1))
		if log.Head() != 3 || log.LogID() != someLog {
			t.Error(log.Head(), log.LogID())
		}
	}
	asked := service.requests()
	if len(asked) != 1 || !strings.Contains(asked[0], "after=0&") || strings.Contains(asked[0], "limit=") || !strings.HasSuffix(asked[0], " application/x-ndjson") {
		t.Errorf("%q", asked)
	}
}

func TestAStreamThatBreaksOffIsResumedFromTheOffset(t *testing.T) {
	service := newLogService(t,
		logScript{pieces: []string{logBeat(9), logRecord(1), logRecord(2)[:40]}, after: "break"},
		logScript{status: 503, code: "overloaded"},
		logScript{pieces: []string{logBeat(9), logRecord(2), logEnd("stopping")}},
		logScript{pieces: []string{logBeat(9), logRecord(3), logEnd("limit")}},
		logScript{pieces: []string{logBeat(9), logRecord(4)}, after: "stay"},
	)
	log := service.reader(t, LogOptions{PageMax: 7})
	for lsn := range 4 {
		next(t, log, LSN(lsn+1))
	}
	asked := service.requests()
	if strings.Contains(asked[0], "log=") || !strings.Contains(asked[0], "limit=7") {
		t.Error(asked[0])
	}
	for at, after := range []string{"after=1&", "after=1&", "after=2&", "after=3&"} {
		if !strings.Contains(asked[at+1], after) || !strings.Contains(asked[at+1], "log="+someLog) {
			t.Error(asked[at+1])
		}
	}
}

func TestALogReaderGivesUpOnceItsRetriesAreUsedUp(t *testing.T) {
	broken := logScript{pieces: []string{logBeat(9)}, after: "break"}
	service := newLogService(t, broken, broken, broken, broken)
	_, err := service.reader(t, LogOptions{}).Next(t.Context())
	var unavailable *Unavailable
	if !errors.As(err, &unavailable) || len(service.requests()) != 3 {
		t.Error(err, service.requests())
	}
}

func TestOnlyAStreamThatWasIdleDuringTheCallEndsTheWait(t *testing.T) {
	service := newLogService(t,
		logScript{pieces: []string{logBeat(1), logRecord(1), logEnd("idle")}},
		logScript{pieces: []string{logBeat(2), logRecord(2), logEnd("idle")}},
		logScript{pieces: []string{logBeat(2), logEnd("idle")}},
		logScript{pieces: []string{logBeat(2), logEnd("idle")}},
	)
	log := service.reader(t, LogOptions{Wait: -1})
	next(t, log, 1)
	// The first stream has ended, but before this call.
	next(t, log, 2)
	next(t, log, 0)
	next(t, log, 0)
	if len(service.requests()) != 4 || log.Offset() != 2 {
		t.Error(service.requests())
	}
}

func TestAWaitLongerThanTheServiceWaitsIsContinuedOnAnotherStream(t *testing.T) {
	idle := logScript{pieces: []string{logBeat(1), logEnd("idle")}}
	service := newLogService(t, idle, idle, logScript{pieces: []string{logBeat(1), logRecord(1)}, after: "stay"})
	next(t, service.reader(t, LogOptions{Wait: time.Hour}), 1)
	if asked := service.requests(); strings.Count(strings.Join(asked, ""), "wait_ms=60000&") != 3 {
		t.Error(asked)
	}
}

func TestProblemsBeforeAndWithinAStreamReachTheReader(t *testing.T) {
	failed := `{"event":"end","next":"1","reason":"log_truncated","problem":` + problemText(410, "log_truncated") + "}\n"
	ok := logBeat(9)
	service := newLogService(t,
		logScript{pieces: []string{ok, logRecord(1), failed}},
		logScript{status: 410, code: "log_replaced"},
		logScript{status: 401, code: "unauthorized"},
		logScript{pieces: []string{ok, logRecord(3)}},
		logScript{pieces: []string{ok, "{\"lsn\":\n"}},
		logScript{pieces: []string{ok, strings.Replace(logRecord(2), `"writes"`, `"checksum":"00000000","writes"`, 1)}},
	)
	log := service.reader(t, LogOptions{})
	next(t, log, 1)
	for _, code := range []string{"mistake log_truncated", "mistake log_replaced", "mistake unauthorized"} {
		if _, err := log.Next(t.Context()); told(err) != code {
			t.Error(err)
		}
	}
	for _, text := range []string{"log record 3 (after 2) where 2", "cannot be parsed", "checksum"} {
		_, err := log.Next(t.Context())
		var misbehaved *ServerMisbehaved
		if !errors.As(err, &misbehaved) || !strings.Contains(err.Error(), text) || log.Offset() != 1 {
			t.Error(err)
		}
	}
}

func TestOperationsOfANewerServiceArePassedOnAndItsEventsPassedOver(t *testing.T) {
	event := `{"event":"moved","log":"` + someLog + `","to":{"node":2}}` + "\n"
	later := strings.Replace(logRecord(1), `"op":"put"`, `"op":"merge"`, 1)
	service := newLogService(t, logScript{pieces: []string{event, logBeat(9), later, event, logRecord(2)}, after: "stay"})
	log := service.reader(t, LogOptions{})
	record, err := log.Next(t.Context())
	if err != nil || record.Writes[0].Op != "merge" {
		t.Fatalf("%+v, %v", record, err)
	}
	next(t, log, 2)
}

func TestALineWithoutAnEndIsRefused(t *testing.T) {
	pieces := make([]string, 40)
	for at := range pieces {
		pieces[at] = strings.Repeat("x", 1<<20)
	}
	service := newLogService(t, logScript{pieces: pieces, after: "stay"})
	_, err := service.reader(t, LogOptions{}).Next(t.Context())
	var misbehaved *ServerMisbehaved
	if !errors.As(err, &misbehaved) || !strings.Contains(err.Error(), "bytes") {
		t.Error(err)
	}
}

// The timeout covers the body of a response, and a stream's body has no end.
func TestTheTimeoutOfTheHTTPClientEndsNoStream(t *testing.T) {
	service := newLogService(t, logScript{pieces: []string{logBeat(1), logRecord(1)}, after: "stay"})
	options := Options{Retry: RetryPolicy{AttemptsMax: 1}, HTTPClient: &http.Client{Timeout: 50 * time.Millisecond}}
	client, err := New(service.URL, options)
	if err != nil {
		t.Fatal(err)
	}
	log := client.Log("kv", LogOptions{})
	defer log.Close()
	next(t, log, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := log.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
		t.Error(err)
	}
}

func TestAReaderThatDoesNotReadHoldsUpTheStream(t *testing.T) {
	pieces, total := []string{logBeat(9)}, int64(0)
	for lsn := range 1000 {
		pieces = append(pieces, logRecordOf(lsn+1, strings.Repeat("x", 64<<10)))
		total += int64(len(pieces[lsn]))
	}
	service := newLogService(t, logScript{pieces: pieces, after: "stay"})
	log := service.reader(t, LogOptions{})
	next(t, log, 1)
	time.Sleep(500 * time.Millisecond)
	if written := service.written.Load(); written > total/2 {
		t.Errorf("%d of %d bytes were taken", written, total)
	}
	for lsn := range 999 {
		next(t, log, LSN(lsn+2))
	}
}

func TestACancelledCallLosesNoRecordAndAClosedReaderResumes(t *testing.T) {
	service := newLogService(t,
		logScript{pieces: []string{logBeat(9), logRecord(1), logRecord(2)[:40]}, after: "stay"},
		logScript{pieces: []string{logBeat(9), logRecord(2)}, after: "stay"},
		logScript{pieces: []string{logBeat(9), logRecord(3)}, after: "stay"},
	)
	log := service.reader(t, LogOptions{})
	next(t, log, 1)
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, err := log.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	next(t, log, 2)
	log.Close()
	next(t, log, 3)
	for record, err := range log.Follow(short) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(record, err)
		}
	}
}

func TestAReaderContinuesAtAnEndpointThatHasTheRecords(t *testing.T) {
	truncated := logScript{status: 410, code: "log_truncated"}
	end := `{"event":"end","next":"1","reason":"log_truncated","problem":` + problemText(410, "log_truncated") + "}\n"
	first := newLogService(t, truncated, truncated)
	second := newLogService(t, logScript{pieces: []string{logBeat(2), logRecord(1), end}}, truncated)
	third := newLogService(t, logScript{pieces: []string{logBeat(2), logRecord(2)}, after: "stay"})
	log := clientOf(t, Options{}, first.URL, second.URL, third.URL).Log("kv", LogOptions{})
	t.Cleanup(log.Close)
	next(t, log, 1)
	next(t, log, 2)
	if counts := []int{len(first.requests()), len(second.requests()), len(third.requests())}; !slices.Equal(counts, []int{2, 2, 1}) {
		t.Fatal(counts)
	}
}

func TestAReaderWhoseRecordsNoEndpointHasEndsAndIsToldWhichWasNotReached(t *testing.T) {
	newTruncated := func() *logService { return newLogService(t, logScript{status: 410, code: "log_truncated"}) }
	first, second, third, dead := newTruncated(), newTruncated(), newTruncated(), deadEndpoint(t)
	for said, urls := range map[string][]string{
		"none of this client's endpoints has enough of the log": {first.URL, second.URL},
		"and these did not: " + dead + ": ":                     {dead, third.URL},
	} {
		_, err := clientOf(t, Options{}, urls...).Log("kv", LogOptions{}).Next(t.Context())
		if told(err) != "mistake log_truncated" || !strings.Contains(err.Error(), said) {
			t.Fatal(err)
		}
	}
	if counts := []int{len(first.requests()), len(second.requests())}; !slices.Equal(counts, []int{1, 1}) {
		t.Fatal(counts)
	}
}
