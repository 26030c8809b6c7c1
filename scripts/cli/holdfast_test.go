//go:build linux

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// A package has holdfast in bin and the other programs in libexec/holdfast, and bin/proxy may be a program of
// another package. holdfast must have all commands of proxy there: it starts the proxy of its own release,
// executes it for the commands that serve, and names itself in its texts.
func TestHoldfast(t *testing.T) {
	w := newWorld(t)
	built := w.Bin
	bin, libexec := w.mkdir("usr/bin"), w.mkdir("usr/libexec/holdfast")
	for name, dir := range map[string]string{"holdfast": bin, "proxy": libexec, "supervisor": libexec} {
		testkit.Must(t, copyFile(filepath.Join(built, name), filepath.Join(dir, name)))
	}
	testkit.Must(t, os.WriteFile(filepath.Join(bin, "proxy"), []byte("#!/bin/sh\necho another program\n"), 0o700))
	holdfast := func(args ...string) result {
		return w.run(exec.Command(filepath.Join(bin, "holdfast"), args...), nil)
	}
	for _, tt := range []struct {
		args  string
		code  int
		says  string // on standard output or standard error
		never string
	}{
		{"ls", 69, "holdfast: nothing runs here", "proxy new"},
		{"--version", 0, "holdfast version ", ""},
		{"new -d --id s -- sleep 1000", 0, "s", ""},
		{"ls", 0, "sleep 1000", ""},
		{"rm s", 64, "holdfast kill ID", "proxy kill"},
		{"help join", 0, "holdfast join", "proxy join"},
		{"help gate revoke", 0, "holdfast gate revoke", "proxy gate"},
		{"help gate revoked", 64, `there is no command "revoked"; did you mean revoke?`, ""},
		{"help attach bogus", 64, `there is no command "bogus"`, ""},
		{"help logs", 64, "holdfast history ID", ""},
		{"completion bogus", 64, "does not take 1 argument", ""},
		{"gate --help", 0, "holdfast gate", "proxy gate"},
		{"__complete gate --nats-c", 0, "--nats-credentials", ""},
		{"replay x", 64, "holdfast: ", ""},
		{"serve", 75, "holdfast: ", ""},
		{"recordings", 78, "HOLDFAST_RECORDINGS", ""},
		{"--handoff", 0, "took over from pid", ""},
		{"upgrade --dry-run", 0, "could take over", ""},
	} {
		r := holdfast(strings.Fields(tt.args)...)
		text := r.Out + r.Errout
		if r.Code != tt.code || !strings.Contains(text, tt.says) || tt.never != "" && strings.Contains(text, tt.never) {
			t.Errorf("holdfast %s: %v, want exit %d, %q, and not %q", tt.args, r, tt.code, tt.says, tt.never)
		}
	}
	if path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", w.Only("proxy").PID)); err != nil || path != filepath.Join(libexec, "proxy") {
		t.Errorf("the running proxy is %s, %v", path, err)
	}
	testkit.Must(t, os.Remove(filepath.Join(libexec, "proxy")))
	testkit.Must(t, os.Remove(filepath.Join(bin, "proxy")))
	if r := holdfast("gate"); r.Code != 69 || !strings.Contains(r.Errout, "../libexec/holdfast") {
		t.Errorf("without the program proxy: %v", r)
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
