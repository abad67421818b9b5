package tribunal

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestIdleConnectionsAreClosed(t *testing.T) {
	closed := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"stores":[]}`)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	client, err := New(server.URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	// The client remains usable after closing.
	for range 2 {
		if _, err := client.Stores(t.Context()); err != nil {
			t.Fatal(err)
		}
		client.CloseIdleConnections()
		<-closed
	}
}
