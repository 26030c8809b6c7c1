package pty

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// lease makes the file at path one that cannot be opened until release is called, as a file on a file system that does not
// answer.
func lease(t *testing.T, path string) (release func()) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = file.Close() })
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("this file system has no leases: %v", err)
	}
	return func() { _ = file.Close() }
}

// If a program or its interpreter cannot be opened, a search for it ends with ErrNoAnswer, and other programs are found.
// Many searches for it take one thread. When the file system answers again, the program is found and runs.
func TestFindWithoutAnswer(t *testing.T) {
	for _, name := range []string{"program", "outer", "inner"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"program": "#! " + dir + "/outer -x\n", "outer": "#!inner\n", "inner": "#!/bin/echo works\n"} {
				testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
			}
			release := lease(t, filepath.Join(dir, name))
			f := newFinder(20 * time.Millisecond)
			spec := Spec{Argv: []string{"./program"}, Dir: dir, Cols: 80, Rows: 24}
			for range 3 {
				if path, err := f.find(spec); !errors.Is(err, ErrNoAnswer) {
					t.Errorf("got %q, %v, want no answer", path, err)
				}
			}
			if len(f.slots) != 1 {
				t.Errorf("%d searches are running, want 1", len(f.slots))
			}
			f.within = patience
			if path, err := f.find(script("exit")); err != nil {
				t.Errorf("another program: %q, %v", path, err)
			}
			release()
			if path, err := f.find(spec); path != filepath.Join(dir, "program") || err != nil {
				t.Errorf("got %q, %v after the release", path, err)
			}
			if got, want := rest(t, run(t, spec)), "works inner "+dir+"/outer -x "+dir+"/program\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// A finder that has no thread left for another search returns ErrNoAnswer, and finds programs when it has one.
func TestFindWithoutSlot(t *testing.T) {
	f := newFinder(time.Millisecond)
	for range maxSearches {
		f.slots <- struct{}{}
	}
	if path, err := f.find(script("exit")); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %q, %v, want no answer", path, err)
	}
	f.within = patience
	<-f.slots
	if path, err := f.find(script("exit")); err != nil {
		t.Errorf("got %q, %v", path, err)
	}
}
