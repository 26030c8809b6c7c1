package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/sysexits"
)

// However the output is cut, CRLF becomes LF, and other bytes do not change.
func TestLineEnds(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"a\r\nb\r\n", "a\nb\n"},
		{"50%\r100%\r\n", "50%\r100%\n"},
		{"\r\r\n\n\r", "\r\n\n\r"},
		{"", ""},
	} {
		for cut := range len(tt.in) + 1 {
			var out bytes.Buffer
			l := &lineEnds{w: &out}
			for _, part := range []string{tt.in[:cut], tt.in[cut:]} {
				if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatalf("Write(%q): %d, %v", part, n, err)
				}
			}
			if strings.HasSuffix(out.String(), "\r") {
				t.Errorf("%q, cut at %d: %q is written too early", tt.in, cut, out.String())
			}
			if err := l.flush(); err != nil || out.String() != tt.want {
				t.Errorf("%q, cut at %d: %q, %v, want %q", tt.in, cut, out.String(), err, tt.want)
			}
		}
	}
}

// Asterisks stand for a secret only if there are as many as a secret has characters.
func TestMaskedFrom(t *testing.T) {
	for _, tt := range []struct {
		shown, text string
		want        bool
	}{
		{"ls *.x", "ls *.x", true},
		{"ls *.x", "ls a.x", false},
		{"-p ******* -q", "-p hunter2 -q", true},
		{"***", "abc", false},
		{"****", "abcd", true},
		{"a****", "b1234", false},
		{"*****", "abcd", false},
		{"", "", true},
	} {
		if got := isMaskedFrom(tt.shown, tt.text); got != tt.want {
			t.Errorf("%q of %q: %v", tt.shown, tt.text, got)
		}
	}
}

// greet answers the hello of a client, as a proxy does.
func greet(t *testing.T, nc net.Conn) {
	t.Helper()
	if _, _, err := frame.NewReader(nc, frame.Max).Next(); err != nil {
		t.Error(err)
	}
	m, err := protocol.Encode(api.Welcome{Protocol: protocol.Supported(), Agreed: protocol.Version, Instance: "p"})
	if err != nil {
		t.Error(err)
	}
	_, _ = nc.Write(frame.Append(nil, frame.Control, m)) // fails if the client has ended
}

// silentProxy returns a client of a proxy that answers no request.
func silentProxy(t *testing.T) *client.Client {
	t.Helper()
	return proxyOf(t, func(string, protocol.Request) protocol.Message { return nil })
}

// proxyOf returns a client of a proxy that gives these answers to requests of a type. It does not answer if the answer is nil.
func proxyOf(t *testing.T, answer func(request string, id protocol.Request) protocol.Message) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Dial: func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			greet(t, there)
			for r := frame.NewReader(there, frame.Max); ; {
				_, m, err := r.Next()
				if err != nil {
					return
				}
				var request struct {
					Type string
					protocol.Request
				}
				if err := json.Unmarshal(m, &request); err != nil {
					t.Error(err)
				}
				if a := answer(request.Type, request.Request); a != nil {
					m, err := protocol.Encode(a)
					if err != nil {
						t.Error(err)
					}
					_, _ = there.Write(frame.Append(nil, frame.Control, m)) // fails if the client has ended
				}
			}
		}()
		return here, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A run of which it is not known whether it has started, or whether it has ended, must be named, also after a signal.
func TestRunUnanswered(t *testing.T) {
	for _, tt := range []struct {
		name string
		code int
		run  func(context.Context, *client.Client) error
	}{
		{"start", sysexits.TempFail, func(ctx context.Context, c *client.Client) error {
			_, err := (&runOptions{}).start(ctx, c, client.SpawnRequest{ID: "r1"})
			return err
		}},
		{"signal at the start", 143, func(ctx context.Context, c *client.Client) error {
			asked, cancel := context.WithCancelCause(ctx)
			cancel(signalled{syscall.SIGTERM})
			_, err := (&runOptions{}).start(asked, c, client.SpawnRequest{ID: "r1"})
			return err
		}},
		{"end", 143, func(ctx context.Context, c *client.Client) error {
			r := &oneRun{c: c, o: &runOptions{}, s: protocol.SessionInfo{ID: "r1"}}
			return r.end(ctx, signalled{syscall.SIGTERM})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := tt.run(t.Context(), silentProxy(t))
				if exitcode.Of(err) != tt.code || !strings.Contains(exitcode.Text(err), "the same command with --id r1 returns to it") {
					t.Errorf("exit %d, %q; want %d, and the name of the run", exitcode.Of(err), exitcode.Text(err), tt.code)
				}
			})
		})
	}
}

// A SIGINT that arrives twice, as from timeout(1), interrupts a run once. Only a later one ends the run, and one after that leaves it.
func TestInterruptTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := make(chan string, 10)
		c := proxyOf(t, func(request string, _ protocol.Request) protocol.Message {
			requests <- request
			return nil
		})
		signals, done, over := make(chan os.Signal), make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancelCause(t.Context())
		r := &oneRun{c: c, o: &runOptions{}, s: protocol.SessionInfo{ID: "r1"}, signals: signals, ending: &ending{}}
		go func() {
			defer close(over)
			r.handleSignals(t.Context(), cancel, done)
		}()
		for _, want := range []string{"interrupt", "terminate", ""} {
			for range 2 {
				signals <- syscall.SIGINT
			}
			time.Sleep(2 * sameInterrupt)
			got := ""
			for len(requests) > 0 {
				got += <-requests
			}
			if isLeft := ctx.Err() != nil; got != want || isLeft != (want == "") {
				t.Errorf("the requests are %q, want %q; the run is left: %v", got, want, isLeft)
			}
		}
		close(done)
		<-over
		r.late.Stop()
		_ = c.Close()
	})
}
