//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/config"
	"holdfast/shared/sysexits"
	"holdfast/shared/testkit"
)

// A command about a running supervisor does not make a directory, even if --dir is mistyped.
func TestMistypedDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mistyped")
	o := &options{dir: dir}
	for name, command := range map[string]func() error{
		"stop":              func() error { return stop(t.Context(), o, "keep") },
		"upgrade":           func() error { return askUpgrade(t.Context(), o, false, false) },
		"upgrade --dry-run": func() error { return askUpgrade(t.Context(), o, true, false) },
	} {
		if err := command(); protocol.CodeOf(err) != protocol.CodeSupervisorUnreachable {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s has made the directory: %v", name, err)
		}
	}
}

// The help has only the flags that have an effect, and another one is accepted with a warning, because an earlier proxy
// passes all of its own flags.
func TestFlagsOfProxy(t *testing.T) {
	cmd, given := command(), map[string]string{"recordings": "/x", "ring_bytes": "65536", "web": "127.0.0.1:0"}
	if f := cmd.Flags().Lookup("recordings"); f == nil || !f.Hidden {
		t.Errorf("the flag recordings is %+v, want a hidden one", f)
	}
	if f := cmd.Flags().Lookup("ring-bytes"); f == nil || f.Hidden {
		t.Errorf("the flag ring-bytes is %+v", f)
	}
	var told strings.Builder
	warnUnused(&told, given)
	want := "supervisor: warning: --recordings has no effect, because only the proxy uses this setting: write it into holdfast.json, or set HOLDFAST_RECORDINGS where the proxy starts\n" +
		"supervisor: warning: --web has no effect, because only the proxy uses this setting: write it into holdfast.json, or set HOLDFAST_WEB where the proxy starts\n"
	if told.String() != want {
		t.Errorf("the warnings are %q, want %q", told.String(), want)
	}
}

// A mistake in the command line or in a setting has the exit code that the commands of the proxy give to it.
func TestExitCodeOfMistake(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.Chmod(dir, 0o755))
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"--bogus"}, sysexits.Usage},
		{[]string{"stop", "--bogus"}, sysexits.Usage},
		{[]string{"bogus"}, sysexits.Usage},
		{[]string{"stop", "bogus"}, sysexits.Usage},
		{[]string{"stop", "--dir", dir}, sysexits.Config}, // it is open to other users
	} {
		cmd := command()
		cmd.SetArgs(tt.args)
		if err := cmd.Execute(); exitCode(err) != tt.want {
			t.Errorf("supervisor %s: exit code %d, want %d: %v", strings.Join(tt.args, " "), exitCode(err), tt.want, err)
		}
	}
}

// The error about a silent supervisor must not advise to kill process 0, which is the process group of the user.
func TestSilentSupervisorOfUnknownPID(t *testing.T) {
	u := upgrader{dirs: config.Dirs{Runtime: t.TempDir()}}
	lock := u.dirs.Socket(config.SupervisorSocket) + ".lock"
	for _, tt := range []struct {
		pid     string
		advises bool
	}{{"", false}, {"123", true}} {
		testkit.Must(t, os.WriteFile(lock, []byte(tt.pid), 0o600))
		text := u.silent(errors.New("timeout")).Error()
		if strings.Contains(text, "supervisor 0") || strings.Contains(text, "kill -9 "+tt.pid) != tt.advises || !strings.Contains(text, "timeout") {
			t.Errorf("with pid %q in the lock: %s", tt.pid, text)
		}
	}
}
