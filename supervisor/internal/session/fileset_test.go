//go:build linux || darwin

package session

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/journal"
)

// A successor opens the files that an entry has, in their roles, and refuses an entry that lacks
// a file.
func TestFileSet(t *testing.T) {
	dir := t.TempDir()
	file := func(role string) *os.File {
		f, err := os.Create(filepath.Join(dir, role))
		testkit.Must(t, err)
		return f
	}
	for _, tt := range []struct {
		name  string
		files fileSet
		roles []string
		isBad bool
	}{
		{"all", fileSet{file(fileMaster), file(fileRing), file(fileState), file(fileKeyframe), noJournal, known{SessionID: "x"}}, []string{fileMaster, fileRing, fileState, fileKeyframe}, false},
		{"exited", fileSet{nil, file(fileRing), file(fileState), file(fileKeyframe), noJournal, known{SessionID: "x"}}, []string{fileRing, fileState, fileKeyframe}, false},
		{"of a trial", fileSet{nil, nil, file(fileState), file(fileKeyframe), noJournal, known{SessionID: "x"}}, trialFiles, false},
		{"without a ring", fileSet{nil, nil, file(fileState), file(fileKeyframe), noJournal, known{SessionID: "x"}}, []string{fileRing}, true},
	} {
		if !tt.isBad { // a queue, whose descriptor the entry carries as a number
			fd, err := unix.Open(filepath.Join(dir, "queue"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
			testkit.Must(t, err)
			tt.files.journal = journal.Files{Pipe: -1, Queue: fd}
		}
		r, err := tt.files.entry("session x", 7)
		if err != nil || r.ID != "session x" || r.PID != 7 {
			t.Fatalf("%s: %+v, %v", tt.name, r, err)
		}
		for i, fd := range r.FDs { // the entry's descriptors are used up
			if r.FDs[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
				t.Fatal(err)
			}
		}
		got, err := openEntry(r, tt.roles...)
		if tt.isBad != (err != nil) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err == nil {
			for _, f := range [][2]*os.File{{got.master, tt.files.master}, {got.ring, tt.files.ring}, {got.state, tt.files.state}, {got.keyframe, tt.files.keyframe}} {
				if (f[0] == nil) != (f[1] == nil) || f[0] != nil && !isSame(t, f[0], f[1]) {
					t.Errorf("%s: got %v, want %v", tt.name, f[0], f[1])
				}
			}
			if got.journal.Pipe >= 0 || (got.journal.Queue >= 0) != (tt.files.journal.Queue >= 0) {
				t.Errorf("%s: journal %+v", tt.name, got.journal)
			}
			got.close()
		}
		tt.files.close()
	}
}

func isSame(t *testing.T, a, b *os.File) bool {
	t.Helper()
	x, err := a.Stat()
	testkit.Must(t, err)
	y, err := b.Stat()
	testkit.Must(t, err)
	return os.SameFile(x, y)
}
