package protocol_test

import (
	"errors"
	"strings"
	"testing"

	"holdfast/protocol"
)

// Agree must return the highest version that both ranges contain, or an error with both ranges that says
// which side to upgrade. Both sides must get the same result.
//
// demand: S13
func TestAgree(t *testing.T) {
	const top = 5
	var ranges []protocol.VersionRange
	for lo := 1; lo <= top; lo++ {
		for hi := lo; hi <= top; hi++ {
			ranges = append(ranges, protocol.VersionRange{Min: lo, Max: hi})
		}
	}
	for _, a := range ranges {
		for _, b := range ranges {
			want := 0
			for v := 1; v <= top; v++ {
				if a.Min <= v && v <= a.Max && b.Min <= v && v <= b.Max {
					want = v
				}
			}
			got, err := protocol.Agree(a, b)
			far, farErr := protocol.Agree(b, a)
			if got != want || far != want || (err == nil) != (want > 0) || (farErr == nil) != (want > 0) {
				t.Errorf("%s with %s: got %d (%v) and %d (%v), want %d", a, b, got, err, far, farErr, want)
			}
			if want == 0 {
				checkMismatch(t, err, a, b)
				checkMismatch(t, farErr, b, a)
			}
		}
	}
}

func checkMismatch(t *testing.T, err error, local, remote protocol.VersionRange) {
	t.Helper()
	advice := "upgrade the peer"
	if remote.Min > local.Max {
		advice = "upgrade this side"
	}
	var e *protocol.Error
	if !errors.As(err, &e) || e.Code != protocol.CodeProtocolMismatch || *e.Local != local || *e.Remote != remote {
		t.Fatalf("%s with %s: got %v", local, remote, err)
	}
	for _, part := range []string{local.String(), remote.String(), advice} {
		if !strings.Contains(e.Message, part) {
			t.Errorf("the error text %q lacks %q", e.Message, part)
		}
	}
}

// If a peer sends an invalid range, Agree must fail.
func TestAgreeNonsense(t *testing.T) {
	ours := protocol.VersionRange{Min: 2, Max: 4}
	for _, theirs := range []protocol.VersionRange{{}, {Min: 4, Max: 2}, {Min: 3}, {Min: -1, Max: -1}, {Min: 5, Max: 3}} {
		if v, err := protocol.Agree(ours, theirs); protocol.CodeOf(err) != protocol.CodeProtocolMismatch {
			t.Errorf("with %s: got %d and %v", theirs, v, err)
		}
	}
	if v, err := protocol.Agree(protocol.Supported(), protocol.Supported()); v != protocol.Version || err != nil {
		t.Errorf("Agree with the same range: got %d and %v, want %d", v, err, protocol.Version)
	}
}

func TestCapabilities(t *testing.T) {
	said := protocol.Capabilities{"from.the.future", protocol.CapWebTicket}
	if !said.Has(protocol.CapWebTicket) || said.Has(protocol.CapTerminalExit) || protocol.Capabilities(nil).Has("") {
		t.Errorf("Has returns a wrong result for %q", said)
	}
}
