//go:build unix

package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"holdfast/protocol"
	"holdfast/proxy/internal/daemon"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/config"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
	"holdfast/shared/testkit"
)

// A report goes through a pipe, so that it needs no room on the disk, and arrives whole in whatever pieces it is written.
func TestFollower(t *testing.T) {
	path := filepath.Join(testkit.Dir(t), "report")
	pipe, err := makeReport(path)
	testkit.Must(t, err)
	f := &follower{o: &handoffOptions{quiet: true}, pipe: pipe, seen: map[string]handoff.Progress{}}
	defer f.close()
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != fs.ModeNamedPipe || info.Mode().Perm() != 0o600 {
		t.Errorf("the report is %v, %v", info.Mode(), err)
	}
	f.read()
	successor, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	testkit.Must(t, err)
	for _, part := range []string{`{"step":"linked"}` + "\n" + `{"step":"ser`, `ving","pid":7}` + "\n"} {
		if f.over() {
			t.Error("half of a step was read")
		}
		if _, err := successor.WriteString(part); err != nil {
			t.Fatal(err)
		}
		f.read()
	}
	_ = successor.Close()
	f.read()
	if f.seen["linked"].Step == "" || f.seen["serving"].PID != 7 {
		t.Errorf("the steps are %+v", f.seen)
	}
	if pid := f.replaced(5); pid != 0 {
		t.Errorf("the successor has replaced pid %d, want 0, because no proxy has made an offer", pid)
	}
	for _, tt := range []struct {
		code       protocol.Code
		exit, want int
	}{{"", 0, sysexits.Software}, {protocol.CodeSupervisorUnreachable, 0, sysexits.Unavailable}, {protocol.CodeNotFound, sysexits.Config, sysexits.Config}} {
		f.seen["failed"] = handoff.Progress{Step: "failed", Error: "no", Code: tt.code, ExitCode: tt.exit}
		if got := exitcode.Of(f.err()); got != tt.want {
			t.Errorf("the exit code of a successor that failed with %+v is %d", tt, got)
		}
	}
}

// A command that makes a pipe removes those of commands that were killed, and no others.
func TestReportsOfKilledCommands(t *testing.T) {
	a := &App{Dir: testkit.Dir(t), Proxy: config.DefaultProxy, ending: &ending{}}
	running, err := a.newFollower(&handoffOptions{})
	testkit.Must(t, err)
	defer running.close()
	killed, err := a.newFollower(&handoffOptions{})
	testkit.Must(t, err)
	if err := killed.pipe.Close(); err != nil { // as the kernel does
		t.Fatal(err)
	}
	file := filepath.Join(a.Dir, "proxy.handoff-file")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	next, err := a.newFollower(&handoffOptions{})
	testkit.Must(t, err)
	defer next.close()
	for path, want := range map[string]bool{running.pipe.Name(): true, killed.pipe.Name(): false, next.pipe.Name(): true, file: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v; %v", path, err == nil, want, err)
		}
	}
	if all, _ := filepath.Glob(filepath.Join(a.Dir, "*"+reportInfix+"*")); len(all) != 3 {
		t.Errorf("the files are %v", all)
	}
}

// A successor that begins to move clients while the command asks which proxy serves must not be ended.
func TestWaitServingLate(t *testing.T) {
	a := &App{Dir: testkit.Dir(t), Proxy: config.DefaultProxy, ending: &ending{}}
	f, err := a.newFollower(&handoffOptions{quiet: true, timeout: -Grace}) // the time is over at once
	testkit.Must(t, err)
	defer f.close()
	old, err := socket.Listen(filepath.Join(a.Dir, config.APISocket(a.Proxy)), socket.Options{})
	testkit.Must(t, err)
	defer old.Close()
	go func() {
		conn, _, err := old.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := f.pipe.WriteString(`{"step":"compared"}` + "\n" + `{"step":"serving"}` + "\n"); err != nil {
			t.Error(err)
		}
		greet(t, conn)
	}()
	p, err := daemon.StartHere(daemon.Spec{Path: "/bin/sleep", Args: []string{"1000"}}, nil)
	testkit.Must(t, err)
	defer p.End()
	if err := a.waitServing(t.Context(), p, f); err != nil {
		t.Error(err)
	}
	select {
	case <-p.Exited:
		t.Error("the successor was ended")
	default:
	}
}

// If a proxy that was started cannot write its log, its user must be told so, and not the last error that is in the log.
func TestLastError(t *testing.T) {
	a := &App{Dir: testkit.Dir(t), Proxy: config.DefaultProxy}
	path := filepath.Join(a.Dir, "proxy.log")
	testkit.Must(t, os.WriteFile(path, []byte(`{"error":"of today"}`+"\n"), 0o600))
	if got := a.lastError(); got != "of today" {
		t.Errorf("the last error is %q", got)
	}
	testkit.Must(t, os.Remove(path))
	if got := a.lastError(); got != "its log "+path+" is empty" {
		t.Errorf("without a log, the last error is %q", got)
	}
	testkit.Must(t, os.Remove(path))
	if err := os.Mkdir(path, 0o700); err != nil { // like a file of another user
		t.Fatal(err)
	}
	if got := a.lastError(); got != "open "+path+": is a directory" {
		t.Errorf("the last error is %q", got)
	}
}
