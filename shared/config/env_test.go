package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"holdfast/shared/testkit"
)

func TestCleanEnv(t *testing.T) {
	keep := []string{
		"HOME=/h", "PATH=/bin", "LANG=C.UTF-8", "LC_ALL=C", "XDG_RUNTIME_DIR=/r", "TZ=",
		"SSH_AUTH_SOCK=/a", "DBUS_SESSION_BUS_ADDRESS=unix:path=/r/bus", "XAUTHORITY=/x", "EDITOR=vi", "GOPATH=/g", "https_proxy=http://p:1",
	}
	drop := []string{
		"ELECTRON_RUN_AS_NODE=1", "npm_config_registry=x", "NODE_OPTIONS=--require x", "LISTEN_FDS=1", "LISTEN_PID=1", "LISTEN_FDNAMES=x",
		"NOTIFY_SOCKET=/n", "INVOCATION_ID=i", "PLUGIN_MIN_PORT=1", "HOLDFAST_DIR=/d", "HOLDFAST_SESSION=s", "HOLDFAST_SECRET_FILE=/s",
		"GITHUB_TOKEN=x", "AWS_SECRET_ACCESS_KEY=x", "OPENAI_API_KEY=x", "DB_PASSWORD=x", "PGPASSWORD=x", "TERM=dumb", "VIRTUAL_ENV=/v",
		"XDG_ACTIVATION_TOKEN=x", "XDG_SESSION_COOKIE=x", "LC_SECRET=x", "LC_api_key=x", "XDG_Password=x", // the prefix is allowed, but the name looks like a secret
		"HTTPS_PROXY=http://me:pw@p:1", "LD_PRELOAD=/x.so", "UNKNOWN=1", "HOMER=x", "PATH", "=C:=C:\\", "",
	}
	var in []string
	for i := range max(len(keep), len(drop)) { // mixed, so that the test notices a wrong order
		if i < len(keep) {
			in = append(in, keep[i])
		}
		if i < len(drop) {
			in = append(in, drop[i])
		}
	}
	if got := CleanEnv(in); !slices.Equal(got, keep) {
		t.Errorf("got  %q\nwant %q", got, keep)
	}
	if got := CleanEnv(nil); got == nil || len(got) != 0 {
		t.Errorf("CleanEnv(nil) is %#v, want an empty slice, because os/exec replaces nil by its own environment", got)
	}
}

// Daemons must get the variables that they need, and no variable that was meant for the command that started
// them.
func TestDaemonEnv(t *testing.T) {
	base := testkit.Dir(t)
	own := filepath.Join(base, strconv.Itoa(os.Geteuid()))
	testkit.Must(t, os.Mkdir(own, 0o700))
	s := system{goos: "linux", uid: os.Geteuid(), users: base, home: func() string { return "/h" }}
	keep := []string{
		"HOME=/h", "PATH=/bin", "SSH_AUTH_SOCK=/a", "DBUS_SESSION_BUS_ADDRESS=unix:path=/r/bus", "XDG_STATE_HOME=/s", "GORACE=x", "PYTHONPATH=/p", "AWS_PROFILE=p", "AWS_SHARED_CREDENTIALS_FILE=/c",
		"HOLDFAST_DIR=/d", "HOLDFAST_SECRET_FILE=/s", "HOLDFAST_FAULT=x", "HOLDFAST_TASK_ID=1",
	}
	drop := []string{
		"DEPLOY_TOKEN=x", "AWS_SECRET_ACCESS_KEY=x", "UNKNOWN=1", "NOTIFY_SOCKET=/n", "LISTEN_FDS=1", "LD_PRELOAD=/x.so",
		"HOLDFAST_TOKEN=x", "HOLDFAST_SESSION=s", "HOLDFAST_INSTANCE=i", "HOLDFAST_GATE=g", "HOLDFAST_API_KEY=x", "XDG_ACTIVATION_TOKEN=x",
	}
	for _, xdg := range []string{"", "XDG_RUNTIME_DIR=relative", "XDG_RUNTIME_DIR=" + own} {
		got := s.daemonEnv(append(append(slices.Clone(drop), keep...), xdg))
		if want := append(slices.Clone(keep), "XDG_RUNTIME_DIR="+own); !slices.Equal(got, want) {
			t.Errorf("%s: got  %q\nwant %q", xdg, got, want)
		}
	}
	s.goos = "windows"
	if got := s.daemonEnv(drop); !slices.Equal(got, drop) {
		t.Errorf("daemonEnv on Windows: %q", got)
	}
}

func TestLoginShell(t *testing.T) {
	dir := t.TempDir()
	program, text := filepath.Join(dir, "shell"), filepath.Join(dir, "text")
	for path, mode := range map[string]os.FileMode{program: 0o700, text: 0o600} {
		testkit.Must(t, os.WriteFile(path, nil, mode))
	}
	passwd := filepath.Join(dir, "passwd")
	lines := fmt.Sprintf("root:x:0:0::/root:/bin/none\nbroken\nme:x:1000:1000:,,,:/h:%s\n", program)
	testkit.Must(t, os.WriteFile(passwd, []byte(lines), 0o600))
	for _, tt := range []struct {
		name, env string
		uid       int
		want      string
	}{
		{"SHELL", "/bin/sh", 1000, "/bin/sh"},
		{"the user's", "", 1000, program},
		{"SHELL relative", "sh", 1000, program},
		{"SHELL no program", text, 1000, program},
		{"SHELL a directory", dir, 1000, program},
		{"the user's is gone", "", 0, "/bin/sh"},
		{"unknown user", "/none", 7, "/bin/sh"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := loginShell(tt.env, passwd, tt.uid); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	if got := loginShell("", filepath.Join(dir, "none"), 0); got != "/bin/sh" {
		t.Errorf("loginShell without a user database: %s", got)
	}
	if got := LoginShell(); !isProgram(got) {
		t.Errorf("LoginShell returns %s, which is not a program", got)
	}
}
