package tribunal

import (
	"crypto/tls"
	"net/http"
)

// streamClient returns the HTTP client of commit streams. Each stream gets a connection of its own, over HTTP/1.1: the
// service accepts three streams per connection, and over HTTP/2 a stream whose window is full blocks the other requests
// of its connection. A transport that dials TLS itself, or is no *http.Transport, is used as it is.
func streamClient(client *http.Client) *http.Client {
	streams := *client
	// A stream has no timeout: the service sends heartbeats.
	streams.Timeout = 0
	inner := client.Transport
	if inner == nil {
		inner = http.DefaultTransport
	}
	transport, ok := inner.(*http.Transport)
	if !ok || transport.DialTLSContext != nil || transport.DialTLS != nil {
		return &streams
	}
	own := transport.Clone()
	// The documented way to disable HTTP/2 is an empty map that is not nil. The protocols that a used transport has added
	// to its TLS configuration must be removed, too: they would still offer HTTP/2.
	own.ForceAttemptHTTP2 = false
	own.Protocols, own.HTTP2 = nil, nil
	own.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	if own.TLSClientConfig != nil {
		own.TLSClientConfig.NextProtos = nil
	}
	// As many as there are streams, and none is kept after its stream.
	own.MaxConnsPerHost, own.MaxIdleConnsPerHost = 0, -1
	streams.Transport = own
	return &streams
}
