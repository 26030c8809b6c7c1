//go:build unix

package policyhost

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// At each start the program must have the configured sum.
func TestSum(t *testing.T) {
	s := newStage(t, "served")
	cfg := s.config()
	cfg.Path = filepath.Join(s.dir, "policy")
	testkit.Must(t, copyFile(cfg.Path, programPath(t)))
	cfg.SHA256 = strings.Repeat("0", 64)
	_, err := Start(testkit.Soon(t), cfg)
	_, right, _ := strings.Cut(err.Error(), "its SHA-256 is ")
	right = right[:64]
	if protocol.CodeOf(err) != protocol.CodePermissionDenied || !strings.Contains(err.Error(), cfg.SHA256) {
		t.Fatalf("got %v, want permission_denied with both sums", err)
	}
	cfg.SHA256 = strings.ToUpper(right)
	h, p := s.start(cfg)
	testkit.Must(t, auth(t, h, ""))
	testkit.Must(t, os.Remove(cfg.Path))
	testkit.Must(t, os.WriteFile(cfg.Path, []byte("#!/bin/sh\nexec "+programPath(t)+"\n"), 0o700))
	p.kill(t, syscall.SIGKILL)
	if lines := s.log.wait(t, "policy could not be restarted", 2); lines[0]["security"] != true {
		t.Errorf("got %v, want security true", lines[0])
	}
	wantUnavailable(t, "another program", auth(t, h, ""))
	if len(s.came) != 0 {
		t.Error("the other program was started")
	}
}

// A program that other users can replace is refused.
func TestTrusted(t *testing.T) {
	dir := testkit.Dir(t)
	path := filepath.Join(dir, "a", "b", "policy")
	link := filepath.Join(dir, "links", "policy")
	mode := func(path string, m os.FileMode) func() error { return func() error { return os.Chmod(path, m) } }
	for _, err := range []error{
		os.MkdirAll(filepath.Dir(path), 0o700), os.Mkdir(filepath.Dir(link), 0o700),
		os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700), os.Symlink(path, link),
	} {
		testkit.Must(t, err)
	}
	for _, tt := range []struct {
		name         string
		path         string
		harm, mended func() error
		says         string // "" if the program is trusted
	}{
		{name: "writable by the user alone", path: path},
		{name: "by a link", path: link},
		{name: "a writable file", path: path, harm: mode(path, 0o720), mended: mode(path, 0o700), says: "chmod go-w " + path},
		{name: "a directory of a group", path: path, harm: mode(dir+"/a/b", 0o772), mended: mode(dir+"/a/b", 0o700), says: "chmod go-w " + dir + "/a/b"},
		{name: "a directory above", path: path, harm: mode(dir+"/a", 0o707), mended: mode(dir+"/a", 0o700), says: "chmod go-w " + dir + "/a"},
		{name: "a sticky directory", path: path, harm: mode(dir+"/a", 0o777|os.ModeSticky), mended: mode(dir+"/a", 0o700)},
		{name: "a link in such a directory", path: link, harm: mode(dir+"/links", 0o777), mended: mode(dir+"/links", 0o700), says: "chmod go-w " + dir + "/links"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.harm != nil {
				testkit.Must(t, tt.harm())
				defer func() { _ = tt.mended() }()
			}
			err := trusted(tt.path)
			if tt.says == "" && err != nil {
				t.Errorf("got %v, want no error", err)
			}
			if tt.says != "" && (protocol.CodeOf(err) != protocol.CodePermissionDenied || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("got %v, want permission_denied with %q", err, tt.says)
			}
		})
	}
	if os.Getuid() != 0 {
		t.Skip("only root can give a file away")
	}
	testkit.Must(t, os.Chown(path, 12345, -1))
	if err := trusted(path); protocol.CodeOf(err) != protocol.CodePermissionDenied || !strings.Contains(err.Error(), "neither to you nor to root") {
		t.Errorf("got %v, want permission_denied", err)
	}
}
