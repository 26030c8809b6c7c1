//go:build unix

package agent

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"holdfast/shared/testkit"
)

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestFollow(t *testing.T) {
	dir := testkit.Dir(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	l := New(dir)
	if _, err := os.Lstat(in(Name)); err == nil {
		t.Error("there is a link that nobody has asked for")
	}
	link := func(to, at string) {
		t.Helper()
		testkit.Must(t, os.Symlink(to, in(at)))
	}
	listen(t, in("a"))
	listen(t, in("b"))
	gone := listen(t, in("gone"))
	gone.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = gone.Close()
	testkit.Must(t, os.WriteFile(in("file"), nil, 0o600))
	link("a", "to-a")
	link(Name, "to-us")
	link(in("to-us"), "to-us-again")
	link("loop", "loop")
	testkit.Must(t, os.Symlink(dir, in("dir")))
	for _, tt := range []struct {
		socket, leads string
		ok            bool
	}{
		{in("file"), "", false},
		{in("to-us"), "", false}, // nothing is there yet
		{in("a"), in("a"), true},
		{in("b"), in("b"), true},
		{in("gone"), in("b"), false},
		{in("none"), in("b"), false},
		{in("file"), in("b"), false},
		{"b", in("b"), false},
		{"", in("b"), false},
		{in(Name), in("b"), true},
		{in("to-us"), in("b"), true},
		{in("to-us-again"), in("b"), true},
		{in("dir/" + Name), in("b"), true},
		{in("loop"), in("b"), false},
		{in("to-a"), in("to-a"), true},
	} {
		path, err := l.Follow(tt.socket)
		leads, _ := os.Readlink(in(Name))
		if (err == nil) != tt.ok || leads != tt.leads || err == nil && path != in(Name) {
			t.Errorf("Follow(%s): %s, %v, and it leads to %s, want %s", tt.socket, path, err, leads, tt.leads)
		}
	}
}

// Whoever comes at once, there is always an agent behind the link.
func TestFollowAtOnce(t *testing.T) {
	dir := testkit.Dir(t)
	l := New(dir)
	sockets := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	for _, s := range sockets {
		listen(t, s)
	}
	if _, err := l.Follow(sockets[0]); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				if _, err := l.Follow(sockets[i%2]); err != nil {
					t.Error(err)
				}
				c, err := net.Dial("unix", filepath.Join(dir, Name))
				if err != nil {
					t.Error(err)
					continue
				}
				_ = c.Close()
			}
		})
	}
	wg.Wait()
}
