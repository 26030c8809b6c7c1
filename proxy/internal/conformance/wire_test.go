package conformance

import (
	"net"
	"testing"
)

// TestLeaves checks that a client may close a connection during the handshake of a WebSocket, and may not send another
// request.
func TestLeaves(t *testing.T) {
	for sent, left := range map[string]bool{"": true, "GET " + apiPath + " HTTP/1.1\r\nHost: a": true, "GET / HTTP/1.1\r\nHost: a\r\n\r\n": false} {
		client, proxy := net.Pipe()
		go func() {
			_, _ = client.Write([]byte(sent))
			if !left {
				_, _ = client.Read(make([]byte, 4096)) // the refusal
			}
			_ = client.Close()
		}()
		if _, err := accept(proxy, WebSocket); err == nil || hasLeft(err) != left {
			t.Errorf("%q: got %v, left %t, want left %t", sent, err, hasLeft(err), left)
		}
		_ = proxy.Close()
	}
}
