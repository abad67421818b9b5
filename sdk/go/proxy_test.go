package tribunal_test

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// A proxy is a TCP proxy that loses requests or replies on demand.
type proxy struct {
	target   string
	listener net.Listener
	lost     chan struct{}

	mutex       sync.Mutex
	what        loss
	line        string
	connections []net.Conn
}

type loss int

const (
	nothing loss = iota
	// reply: the request arrives and the service answers, but the connection breaks before the client gets the answer.
	reply
	// request: the connection breaks before the request arrives.
	request
	// silence: the request arrives, but the answer never does; the connection stays open.
	silence
)

func startProxy(t *testing.T) *proxy {
	t.Helper()
	target, err := url.Parse(serverURL(t))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target.Host, listener: listener, lost: make(chan struct{}, 100)}
	go p.accept()
	t.Cleanup(p.stop)
	return p
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

// lose loses the next request whose first line has the given text.
func (p *proxy) lose(what loss, line string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.what, p.line = what, line
}

func (p *proxy) stop() {
	_ = p.listener.Close()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, connection := range p.connections {
		_ = connection.Close()
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mutex.Lock()
		p.connections = append(p.connections, client, server)
		p.mutex.Unlock()
		go p.pair(client, server)
	}
}

func (p *proxy) pair(client, server net.Conn) {
	end := func() { _, _ = client.Close(), server.Close() }
	var mutex sync.Mutex
	lost := nothing
	go func() {
		defer end()
		each(server, func(data []byte) bool {
			mutex.Lock()
			defer mutex.Unlock()
			if lost == nothing {
				_, _ = client.Write(data)
			}
			return lost != reply
		})
	}()
	defer end()
	each(client, func(data []byte) bool {
		first, _, _ := bytes.Cut(data, []byte("\r\n"))
		p.mutex.Lock()
		now := nothing
		if p.what != nothing && bytes.Contains(first, []byte(p.line)) {
			now, p.what = p.what, nothing
		}
		p.mutex.Unlock()
		if now != nothing {
			mutex.Lock()
			lost = now
			mutex.Unlock()
			p.lost <- struct{}{}
		}
		if now == request {
			return false
		}
		_, err := server.Write(data)
		return err == nil
	})
}

func each(from net.Conn, do func([]byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		read, err := from.Read(buffer)
		if err != nil || !do(buffer[:read]) {
			return
		}
	}
}
