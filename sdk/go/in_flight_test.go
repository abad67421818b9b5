package tribunal_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tribunal "tribunal.internal/client"
)

// counting starts a proxy that delays replies, and counts the requests with commits that are in flight at the same
// time.
func counting(t *testing.T) (url string, inFlightMax *atomic.Int32) {
	t.Helper()
	target := must[*neturl.URL](t)(neturl.Parse(serverURL(t)))
	var inFlight atomic.Int32
	inFlightMax = new(atomic.Int32)
	through := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if isCommit(r.In) {
				inFlightMax.Store(max(inFlightMax.Load(), inFlight.Add(1)))
			}
		},
		ModifyResponse: func(response *http.Response) error {
			body, err := io.ReadAll(response.Body)
			response.Body = io.NopCloser(bytes.NewReader(body))
			if isCommit(response.Request) {
				time.Sleep(2 * time.Millisecond)
				// Before the reply is sent: the client may send its next request as soon as it receives it.
				inFlight.Add(-1)
			}
			return err
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if isCommit(r) {
				inFlight.Add(-1)
			}
			t.Logf("%s is not answered: %v", r.URL.Path, err)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	proxy := httptest.NewServer(through)
	t.Cleanup(proxy.Close)
	return proxy.URL, inFlightMax
}

func isCommit(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "commit") }

func TestOneRequestWithCommitsIsInFlightAsLongAsNoneIsSlow(t *testing.T) {
	url, inFlightMax := counting(t)
	client := connectedTo(t, url, tribunal.Options{})
	client.SetHeadStart(time.Hour)
	sessions(t, client, 5)
	equal(t, "in flight", inFlightMax.Load(), 1)
}
