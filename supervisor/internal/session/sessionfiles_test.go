//go:build linux || darwin

package session

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
)

// The vault entry of a session has the files that a successor needs: without terminal and input
// after the exit. A trial reads duplicates of the slates, and finds none after the session was
// forgotten.
func TestSessionFiles(t *testing.T) {
	size := protocol.Size{Cols: 80, Rows: 24}
	terminal, err := pty.Start(pty.Spec{Argv: []string{"sleep", "1000"}, Cols: size.Cols, Rows: size.Rows})
	testkit.Must(t, err)
	defer func() {
		terminal.Hangup(syscall.SIGHUP, 0)
		<-terminal.Done()
		_ = terminal.Close()
	}()
	running, err := makeFiles(ring.MinBytes, size, journal.Config{})
	testkit.Must(t, err)
	running.terminal = terminal
	exited := running
	exited.endInput()
	lost, err := makeLostFiles(size, 700, journal.Config{})
	testkit.Must(t, err)
	if start, end, _ := lost.ring.Bounds(); start != 700 || end != 700 {
		t.Errorf("the lost output is at %d to %d", start, end)
	}
	slates := []string{fileState, fileKeyframe}
	withRing := append([]string{fileRing}, slates...)
	all := append([]string{fileMaster}, withRing...)
	if running.journal.Exact() {
		all = append(all, filePipe)
	}
	for _, tt := range []struct {
		name  string
		files *sessionFiles
		roles []string
	}{
		{"exited", &exited, withRing}, // before running, which has the same files and closes them
		{"running", &running, all},
		{"lost", &lost, withRing},
	} {
		r, done, err := tt.files.liveEntry("session x", 7)
		var meta entryMeta
		if err := errors.Join(err, json.Unmarshal(r.Meta, &meta)); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if !slices.Equal(meta.Files, tt.roles) || r.ID != "session x" || r.PID != 7 {
			t.Errorf("%s: entry of %q with pid %d has the files %q, want %q", tt.name, r.ID, r.PID, meta.Files, tt.roles)
		}
		done()
		r, duplicates, err := tt.files.trialEntry("session x", 7)
		if err := errors.Join(err, json.Unmarshal(r.Meta, &meta)); err != nil || !slices.Equal(meta.Files, slates) {
			t.Errorf("%s: a trial has the files %q: %v", tt.name, meta.Files, err)
		}
		if tt.name != "exited" {
			if err := tt.files.closeFiles(); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			if _, _, err := tt.files.trialEntry("session x", 7); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: a trial of closed files: %v", tt.name, err)
			}
		}
		for _, f := range duplicates {
			if err := f.Close(); err != nil { // the session has not closed it
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	}
}

// If a file cannot be made, the files that were made before it are closed.
func TestHalfMadeFiles(t *testing.T) {
	failure := errors.New("no memory")
	for missing := range 3 { // besides the journal
		f, err := makeFiles(ring.MinBytes, protocol.Size{Cols: 80, Rows: 24}, journal.Config{})
		if err = errors.Join(err, f.journal.Close()); err != nil {
			t.Fatal(err)
		}
		f.journal = nil
		whole := f
		if missing > 0 {
			f.keyframeSlate = nil
		}
		if missing > 1 {
			f.stateSlate = nil
		}
		if err := f.closeAfter(failure); err == nil || err.Error() != failure.Error() {
			t.Errorf("without %d files: %v", missing, err)
		}
		if _, _, err := whole.trialEntry("session x", 7); missing < 2 && !errors.Is(err, os.ErrClosed) {
			t.Errorf("without %d files: the state is not closed: %v", missing, err)
		}
		_ = whole.closeFiles() // most of them are closed already
	}
}
