package exitcode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/sysexits"
)

// A request that is too large does not succeed later, so its exit code must not tell scripts to repeat it.
func TestTooLarge(t *testing.T) {
	tooMany := map[string]string{}
	for i := range protocol.MaxLabels + 1 {
		tooMany[fmt.Sprint(i)] = ""
	}
	spec := protocol.SpawnSpec{Argv: []string{"true"}, Labels: tooMany}
	err := spec.Validate()
	b, _ := json.Marshal(err)
	var sent protocol.Error
	if err := json.Unmarshal(b, &sent); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"of the client": err, "of a peer": &sent} {
		if code := Of(err); protocol.CodeOf(err) != protocol.CodeLimitExceeded || code != sysexits.Usage {
			t.Errorf("%s: %v: exit code %d, want %d", name, err, code, sysexits.Usage)
		}
	}
	for code, want := range map[protocol.Code]int{protocol.CodeLimitExceeded: sysexits.TempFail, protocol.CodeUnsupported: sysexits.Unavailable} {
		if got := Of(protocol.Errorf(code, "a message")); got != want {
			t.Errorf("%s has the exit code %d, want %d", code, got, want)
		}
	}
}

// A disk without room is no error of Holdfast itself, whichever file could not be made.
func TestDiskUsedUp(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS} {
		for _, op := range []string{"mkdir", "mkfifo", "open", "write"} {
			err := fmt.Errorf("start: %w", &fs.PathError{Op: op, Path: "p", Err: cause})
			if got := Of(err); got != sysexits.IOErr {
				t.Errorf("%v: exit code %d, want %d", err, got, sysexits.IOErr)
			}
		}
	}
}

// The message has all errors that were joined, and no line for those without a message.
func TestJoined(t *testing.T) {
	wrapped := fmt.Errorf("connect: %w", New(sysexits.Unavailable, "no supervisor runs"))
	err := errors.Join(errors.New("a: refused"), errors.Join(New(1, ""), New(sysexits.Usage, "b is no id")), wrapped)
	want := strings.Join([]string{"a: refused", "b is no id", "no supervisor runs"}, "\n")
	if got := Text(err); got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}
