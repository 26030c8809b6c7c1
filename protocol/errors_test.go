package protocol_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/internal/drift"
)

// A failed spawn must match spawn_failed and its cause with errors.Is, locally and after it was sent over a
// wire, however often it was wrapped.
//
// demand: M3
func TestErrorIsItsCause(t *testing.T) {
	spawn := func(cause protocol.Code) *protocol.Error {
		return &protocol.Error{Code: protocol.CodeSpawnFailed, Cause: cause}
	}
	unsupported, missing, denied := spawn(protocol.CodeUnsupportedOS), spawn(protocol.CodeNotFound), spawn(protocol.CodePermissionDenied)
	tests := []struct {
		name   string
		err    error
		target error
		want   bool
	}{
		{name: "the code", err: unsupported, target: protocol.ErrSpawnFailed, want: true},
		{name: "the cause", err: unsupported, target: protocol.ErrUnsupportedOS, want: true},
		{name: "another code", err: unsupported, target: protocol.ErrTimeout},
		{name: "no such program", err: missing, target: fs.ErrNotExist, want: true},
		{name: "no such program, the code", err: missing, target: protocol.ErrSpawnFailed, want: true},
		{name: "no such program, the cause", err: missing, target: &protocol.Error{Code: protocol.CodeNotFound}, want: true},
		{name: "not executable", err: denied, target: fs.ErrPermission, want: true},
		{name: "another cause", err: denied, target: fs.ErrNotExist},
		{name: "no cause", err: protocol.ErrSpawnFailed, target: protocol.ErrUnsupportedOS},
		{name: "no cause and no code", err: protocol.ErrSpawnFailed, target: &protocol.Error{}},
		{name: "a code is no cause", err: protocol.ErrSessionNotFound, target: fs.ErrNotExist},
		{name: "a foreign error", err: missing, target: io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := errors.Is(tt.err, tt.target); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
			if got := errors.Is(fmt.Errorf("spawn: %w", overWire(t, tt.err)), tt.target); got != tt.want {
				t.Errorf("over a wire: got %t, want %t", got, tt.want)
			}
		})
	}
}

func overWire(t *testing.T, err error) error {
	t.Helper()
	b, e := json.Marshal(err)
	if e != nil {
		t.Fatal(e)
	}
	var far protocol.Error
	if e := json.Unmarshal(b, &far); e != nil {
		t.Fatal(e)
	}
	return &far
}

func TestCodes(t *testing.T) {
	consts, err := drift.Constants(".")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range protocol.Codes() {
		got = append(got, string(c))
	}
	if want := drift.Values(consts, "Code"); !slices.Equal(slices.Sorted(slices.Values(want)), got) {
		t.Errorf("Codes returns %q, the constants in alphabetical order are %q", got, want)
	}
}

func TestCodeOf(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want protocol.Code
	}{
		{name: "nil"},
		{name: "ours", err: protocol.ErrTimeout, want: protocol.CodeTimeout},
		{name: "ours, wrapped", err: fmt.Errorf("wait: %w", protocol.ErrTimeout), want: protocol.CodeTimeout},
		{name: "ours, joined", err: errors.Join(io.EOF, protocol.ErrTimeout), want: protocol.CodeTimeout},
		{name: "foreign", err: io.EOF, want: protocol.CodeInternal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := protocol.CodeOf(tt.err); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	exit := &protocol.ExitRecord{ExitCode: 143, Signal: "SIGTERM"}
	tests := []struct {
		err  *protocol.Error
		want string
	}{
		{err: protocol.ErrTimeout, want: "timeout"},
		{err: protocol.Errorf(protocol.CodeTimeout, "too late"), want: "timeout: too late"},
		{err: protocol.ExitedEarly("s", &protocol.ExitRecord{ExitCode: 2}), want: "exited_early: session s exited with code 2 right after its start"},
		{err: protocol.ExitedEarly("s", exit), want: "exited_early: session s exited by SIGTERM right after its start"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	if got := protocol.AsError(nil); got != nil {
		t.Errorf("got %v for nil", got)
	}
}
