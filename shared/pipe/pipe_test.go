package pipe

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

const (
	alice = "S-1-5-21-1004336348-1177238915-682003330-512"
	bob   = "S-1-5-21-1004336348-1177238915-682003330-513"
	home  = `C:\Users\alice\AppData\Local\holdfast\run`
)

// demand: S12
func TestName(t *testing.T) {
	const want = `\\.\pipe\holdfast-c372166f6393abd0-proxy.sock`
	if got := Name(alice, home, "proxy.sock"); got != want {
		t.Errorf("got %s, want %s, because clients of other versions use this name", got, want)
	}
	if got := Name(alice, strings.ToUpper(home), "proxy.sock"); got != want {
		t.Errorf("in capitals: got %s, want %s", got, want)
	}
	for what, other := range map[string]string{
		"another user":       Name(bob, home, "proxy.sock"),
		"another directory":  Name(alice, home+"2", "proxy.sock"),
		"another proxy":      Name(alice, home, "second.sock"),
		"user and directory": Name(alice[:len(alice)-1], "2\n"+home, "proxy.sock"),
	} {
		if other == want {
			t.Errorf("%s has the name of the first: %s", what, other)
		}
	}
}

// Windows accepts names of at most 256 characters without backslashes.
// demand: S12
func TestNameCanBe(t *testing.T) {
	got := Name(alice, strings.Repeat(`C:\long`, 1000), strings.Repeat("x", 40))
	rest, ok := strings.CutPrefix(got, `\\.\pipe\`)
	if !ok || strings.Contains(rest, `\`) || len(got) > 256 {
		t.Errorf("the name has %d characters, or a backslash: %s", len(got), got)
	}
}

// demand: S12
func TestSecurityDescriptor(t *testing.T) {
	const want = "O:" + alice + "D:P(D;;GA;;;NU)(A;;GA;;;" + alice + ")"
	if got := SecurityDescriptor(alice); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPeerErrorSaysWho(t *testing.T) {
	err := &PeerError{`\\.\pipe\x`, Peer{SID: bob, PID: 7}, alice}
	if got, want := err.Error(), `\\.\pipe\x: the peer runs as `+bob+` (pid 7), but only `+alice+` is allowed`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// demand: S12
func TestElsewhere(t *testing.T) {
	if Here != (runtime.GOOS == "windows") {
		t.Fatalf("Here is %v on %s", Here, runtime.GOOS)
	}
	if Here {
		t.Skip("this system has named pipes")
	}
	_, own := Own(home, "proxy.sock")
	_, listen := Listen(`\\.\pipe\x`, Options{})
	_, _, dial := Dial(t.Context(), `\\.\pipe\x`)
	_, _, accept := (&Listener{}).Accept()
	for what, err := range map[string]error{"Own": own, "Listen": listen, "Dial": dial, "Accept": accept} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
