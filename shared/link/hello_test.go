package link

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	"holdfast/protocol/link"
	"holdfast/shared/testkit"
)

// demand: S5
func TestHello(t *testing.T) {
	testkit.CheckLeaks(t)
	a, b := pair(t)
	sessions := []protocol.SessionInfo{{ID: "one", Instance: "i1", State: protocol.StateRunning}, {ID: "two", Instance: "i2"}}
	got := accept(t, b, func(*link.Hello) (link.Welcome, []protocol.SessionInfo, error) { return someWelcome, sessions, nil })
	c, welcome, enumerated, err := Dial(a, someHello, zerolog.Nop())
	testkit.Must(t, err)
	defer c.Close()
	end := <-got
	if end.err != nil || !reflect.DeepEqual(*end.hello, someHello) {
		t.Errorf("the supervisor received %+v, %v", end.hello, end.err)
	}
	want := someWelcome
	want.Protocol, want.Agreed = protocol.Supported(), protocol.Version
	if !reflect.DeepEqual(*welcome, want) {
		t.Errorf("the proxy received %+v, want %+v", *welcome, want)
	}
	if fmt.Sprint(enumerated) != fmt.Sprint(sessions) {
		t.Errorf("the sessions are %v, want %v", enumerated, sessions)
	}
}

// ranges returns all ranges with versions up to top, including invalid ones.
func ranges(top int) (all []protocol.VersionRange) {
	for lo := range top + 1 {
		for hi := range top + 1 {
			all = append(all, protocol.VersionRange{Min: lo, Max: hi})
		}
	}
	return all
}

// common is a simple model of Agree: the highest version in both ranges, or -1.
func common(a, b protocol.VersionRange) int {
	found := -1
	for v := range 10 {
		if a.Min <= v && v <= a.Max && b.Min <= v && v <= b.Max {
			found = v
		}
	}
	return found
}

// wantMismatch checks that an error names both ranges.
func wantMismatch(t *testing.T, err error, local, remote protocol.VersionRange) {
	t.Helper()
	var e *protocol.Error
	if !errors.As(err, &e) || e.Code != protocol.CodeProtocolMismatch {
		t.Fatalf("got %v, want protocol_mismatch", err)
	}
	if e.Local == nil || e.Remote == nil || *e.Local != local || *e.Remote != remote {
		t.Errorf("the error has the ranges %v and %v, want %v and %v", e.Local, e.Remote, local, remote)
	}
	if !strings.Contains(e.Message, local.String()) || !strings.Contains(e.Message, remote.String()) {
		t.Errorf("the error text %q lacks a range", e.Message)
	}
}

// Tests a supervisor of this build with proxies of all ranges.
//
// demand: S13
func TestVersionsOfProxies(t *testing.T) {
	testkit.CheckLeaks(t)
	for _, r := range ranges(3) {
		t.Run(r.String(), func(t *testing.T) {
			a, b := pair(t)
			got := accept(t, b, welcomed)
			hello := someHello
			hello.Protocol = r
			c, welcome, _, err := Dial(a, hello, zerolog.Nop())
			end := <-got
			if v := common(protocol.Supported(), r); v >= 0 {
				if err != nil || end.err != nil || welcome.Agreed != v {
					t.Fatalf("the welcome is %v with the errors %v and %v, want version %d", welcome, err, end.err, v)
				}
				c.Close()
				return
			}
			wantMismatch(t, err, protocol.Supported(), r) // the error as the supervisor has sent it
			wantMismatch(t, end.err, protocol.Supported(), r)
		})
	}
}

// Tests proxies of all ranges with supervisors of all ranges that welcome any proxy.
//
// demand: S13
func TestVersionsOfSupervisors(t *testing.T) {
	testkit.CheckLeaks(t)
	for _, own := range ranges(3) {
		for _, other := range ranges(3) {
			a, b := pair(t)
			peer := bareSupervisor(t, b)
			go func() {
				st, err := peer.Accept()
				if err != nil {
					return
				}
				if _, err := st.Receive(); err == nil {
					_ = st.Send(link.Welcome{Protocol: other})
					_ = st.SendSessions(nil)
				}
			}()
			hello := someHello
			hello.Protocol = own
			c, _, _, err := Dial(a, hello, zerolog.Nop())
			if common(own, other) < 0 {
				wantMismatch(t, err, own, other)
				continue
			}
			if err != nil {
				t.Fatalf("%v with %v: %v", own, other, err)
			}
			c.Close()
		}
	}
}

// demand: S5
func TestManySessions(t *testing.T) {
	testkit.CheckLeaks(t)
	all := make([]protocol.SessionInfo, 2000)
	for i := range all {
		all[i] = protocol.SessionInfo{
			ID: protocol.SessionID(fmt.Sprint("session-", i)), Instance: protocol.NewInstance(), OutputOffset: uint64(i),
			Argv: []string{"/bin/sh", "-c", strings.Repeat("x", 500)}, Labels: map[string]string{"n": fmt.Sprint(i)},
		}
	}
	n := 0
	for range protocol.SplitSessions(all) {
		n++
	}
	if n < 3 {
		t.Fatalf("the sessions need only %d messages, so the test would check nothing", n)
	}
	a, b := pair(t)
	got := accept(t, b, func(*link.Hello) (link.Welcome, []protocol.SessionInfo, error) { return someWelcome, all, nil })
	c, _, enumerated, err := Dial(a, someHello, zerolog.Nop())
	testkit.Must(t, err)
	defer c.Close()
	if end := <-got; end.err != nil {
		t.Error(end.err)
	}
	if !reflect.DeepEqual(enumerated, all) {
		t.Errorf("received %d sessions, which differ from the %d that were sent", len(enumerated), len(all))
	}
}

// The proxy must receive any error that a Welcomer returns.
//
// demand: S11
func TestRefused(t *testing.T) {
	testkit.CheckLeaks(t)
	a, b := pair(t)
	got := accept(t, b, func(*link.Hello) (link.Welcome, []protocol.SessionInfo, error) {
		return link.Welcome{}, nil, protocol.Errorf(protocol.CodeUnauthorized, "who are you?")
	})
	_, _, _, err := Dial(a, someHello, zerolog.Nop())
	wantCode(t, "the proxy", err, protocol.CodeUnauthorized)
	wantCode(t, "the supervisor", (<-got).err, protocol.CodeUnauthorized)
}

// Before hello, Accept must accept no other message, and must answer it with an error.
func TestFirstMessage(t *testing.T) {
	testkit.CheckLeaks(t)
	big := frame.AppendHeader(nil, frame.Control, frame.MaxHello) // one byte too long
	tests := []struct {
		name string
		raw  []byte
		want protocol.Code
	}{
		{name: "a request", raw: control(`{"type":"list"}`), want: protocol.CodeHelloRequired},
		{name: "a welcome", raw: control(`{"type":"welcome"}`), want: protocol.CodeHelloRequired},
		{name: "an unknown message", raw: control(`{"type":"teleport"}`), want: protocol.CodeHelloRequired},
		{name: "no JSON", raw: control("hello?"), want: protocol.CodeBadFrame},
		{name: "a field of another type", raw: control(`{"type":"hello","pid":"x"}`), want: protocol.CodeBadFrame},
		{name: "an empty frame", raw: []byte{0, 0, 0, 0}, want: protocol.CodeBadFrame},
		{name: "over the limit before hello", raw: big, want: protocol.CodeFrameTooLarge},
		{name: "4 GiB", raw: []byte{255, 255, 255, 255, 0}, want: protocol.CodeFrameTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := pair(t)
			got := accept(t, b, welcomed)
			peer := bareProxy(t, a)
			st := peer.stream(t, tt.raw)
			e, ok := receiveMessage(t, st).(*link.Error)
			if !ok || e.Code != tt.want {
				t.Errorf("received %+v, want the error %s", e, tt.want)
			}
			peer.Close()
			end := testkit.Within(t, silence, "Accept returns", got)
			wantCode(t, "Accept", end.err, tt.want)
		})
	}
}

// Dial must refuse a supervisor that answers hello with another message.
func TestBadWelcome(t *testing.T) {
	testkit.CheckLeaks(t)
	tests := []struct {
		name string
		raw  []byte
		want protocol.Code
	}{
		{name: "another message", raw: control(`{"type":"ok"}`), want: protocol.CodeBadFrame},
		{name: "no JSON", raw: control("welcome!"), want: protocol.CodeBadFrame},
		{name: "4 GiB", raw: []byte{255, 255, 255, 255, 0}, want: protocol.CodeFrameTooLarge},
		{name: "no sessions", raw: append(control(`{"type":"welcome","protocol":{"min":1,"max":1}}`), control(`{"type":"ok"}`)...), want: protocol.CodeBadFrame},
		{name: "an error instead of sessions", want: protocol.CodeClosed,
			raw: append(control(`{"type":"welcome","protocol":{"min":1,"max":1}}`), control(`{"type":"error","code":"closed","message":""}`)...)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := pair(t)
			peer := bareSupervisor(t, b)
			go func() {
				if st, err := peer.Accept(); err == nil {
					_ = st.SendRaw(tt.raw)
				}
			}()
			_, _, _, err := Dial(a, someHello, zerolog.Nop())
			wantCode(t, "Dial", err, tt.want)
		})
	}
}

// Invalid bytes must end a link at once, on either side, without a leak.
func TestGarbage(t *testing.T) {
	testkit.CheckLeaks(t)
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	inputs := [][]byte{nil, []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), make([]byte, 100_000), {0, 0, 0, 1, 0, 0, 0, 1, 255, 255, 255, 255}}
	for range 40 {
		p := make([]byte, random.IntN(200))
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		if len(p) > 1 && random.IntN(2) == 0 { // valid up to yamux's version and a known type
			p[0], p[1] = 0, byte(random.IntN(4))
		}
		inputs = append(inputs, p)
	}
	for i, in := range inputs {
		a, b := pair(t)
		got := accept(t, b, welcomed)
		_, _ = a.Write(in)
		a.Close()
		if end := testkit.Within(t, silence, "Accept returns", got); end.err == nil {
			t.Errorf("seed %d, input %d: Accept made a link of %x", seed, i, in)
		}

		a, b = pair(t)
		_, _ = b.Write(in)
		b.Close()
		done := make(chan error, 1)
		go func() { _, _, _, err := Dial(a, someHello, zerolog.Nop()); done <- err }()
		if err := testkit.Within(t, silence, "Dial returns", done); err == nil {
			t.Errorf("seed %d, input %d: Dial made a link of %x", seed, i, in)
		}
	}
}

// Accept and Dial must give up a peer that stops at any point.
func TestSilence(t *testing.T) {
	testkit.CheckLeaks(t)
	half := control(`{"type":"hello"}`)[:9]
	welcome := control(`{"type":"welcome","protocol":{"min":1,"max":1}}`)
	waiting := map[string]<-chan error{} // all in parallel, because each takes helloTimeout or listTimeout

	for name, says := range map[string][]byte{
		"an empty stream":              {},
		"half a hello":                 half,
		"frames that are no messages":  frame.Append(nil, 77, nil),
		"an answer that it never read": control(`{"type":"hello","protocol":{"min":7,"max":9}}`),
		"nothing":                      nil,
	} {
		a, b := pair(t)
		if peer := bareProxy(t, a); says != nil {
			peer.stream(t, says)
		}
		done := make(chan error, 1)
		go func() { _, _, err := Accept(b, welcomed, zerolog.Nop()); done <- err }()
		waiting["accept, "+name] = done
	}
	for name, says := range map[string][]byte{
		"nothing":                nil,
		"half a welcome":         half,
		"a welcome, no sessions": welcome,
		"more sessions, never":   append(welcome, control(`{"type":"sessions","sessions":[],"more":true}`)...),
	} {
		a, b := pair(t)
		peer := bareSupervisor(t, b)
		go func() {
			if st, err := peer.Accept(); err == nil && says != nil {
				_ = st.SendRaw(says)
			}
		}()
		done := make(chan error, 1)
		go func() { _, _, _, err := Dial(a, someHello, zerolog.Nop()); done <- err }()
		waiting["dial, "+name] = done
	}
	for name, done := range waiting {
		limit := silence
		if strings.Contains(name, "sessions") {
			limit += listTimeout
		}
		if err := testkit.Within(t, limit, name, done); err == nil {
			t.Errorf("%s: the silent peer got a link", name)
		}
	}
}

// A hello that comes slowly, but within the time limit, must be accepted.
func TestSlowHello(t *testing.T) {
	testkit.CheckLeaks(t)
	a, b := pair(t)
	got := accept(t, b, welcomed)
	peer := bareProxy(t, a)
	hello, err := protocol.Encode(someHello)
	testkit.Must(t, err)
	raw := frame.Append(nil, frame.Control, hello)
	st := peer.stream(t, nil)
	for i := range raw { // each byte in a yamux frame of its own
		testkit.Must(t, st.SendRaw(raw[i:i+1]))
	}
	if m, ok := receiveMessage(t, st).(*link.Welcome); !ok || m.Agreed != protocol.Version {
		t.Errorf("received %+v, want welcome", m)
	}
	if end := testkit.Within(t, time.Second+silence, "Accept returns", got); end.err != nil {
		t.Error(end.err)
	}
}
