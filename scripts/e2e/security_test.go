package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/client"
	"holdfast/shared/link"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// nobody is the uid of another user.
const nobody = 65534

// stranger connects to each socket as another user, sends hello, and prints how the connection ended.
func stranger(paths []string) error {
	for _, path := range paths {
		nc, err := net.Dial("unix", path)
		if err != nil {
			return err
		}
		_ = nc.SetDeadline(time.Now().Add(limit))
		_, werr := nc.Write(encode(api.Hello{Protocol: protocol.Supported(), Client: "stranger"}))
		got, err := io.ReadAll(nc)
		fmt.Printf("%s: %d bytes, %s\n", filepath.Base(path), len(got), reset(werr, err))
		_ = nc.Close()
	}
	return nil
}

// reset reports whether the server closed the connection without reading the hello. If the hello was sent
// before, the kernel answers with a reset. If the server closed first, the write fails.
func reset(write, read error) string {
	switch {
	case errors.Is(write, syscall.EPIPE), errors.Is(write, syscall.ECONNRESET):
		return "reset"
	case write == nil && errors.Is(read, syscall.ECONNRESET):
		return "reset"
	}
	return fmt.Sprintf("written: %v, read: %v", write, read)
}

// The programs must refuse another user before they read a byte from the connection, even if the modes of
// directory and sockets permit the connection, and must log the refusal.
// demand: S11
func TestStranger(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	w := newWorld(t)
	v := w.echo(w.dial(client.Options{}), "s")
	// This copy of the test's program is where other users can execute it.
	open := testkit.Dir(t)
	exe := filepath.Join(open, "stranger")
	copyProgram(t, exe)
	sockets := []string{"proxy.sock", "proxy.control.sock", "proxy.web.sock", "supervisor.sock"}
	ask := func() (string, error) {
		var paths []string
		for _, s := range sockets {
			paths = append(paths, w.Path(s))
		}
		cmd := exec.Command(exe, paths...)
		cmd.Env, cmd.Dir = []string{roleEnv + "=stranger"}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	testkit.Must(t, os.Chmod(open, 0o755))
	if out, err := ask(); err == nil || !strings.Contains(out, "permission denied") {
		t.Errorf("the modes permit another user's connection: %q, %v", out, err)
	}
	testkit.Must(t, os.Chmod(w.Dir, 0o755))
	for _, s := range sockets {
		testkit.Must(t, os.Chmod(w.Path(s), 0o777))
	}
	out, err := ask()
	if err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	for _, s := range sockets {
		if !strings.Contains(out, s+": 0 bytes, reset\n") {
			t.Errorf("%s does not refuse another user: %s", s, out)
		}
	}
	refused := []string{`"security":true`, fmt.Sprintf(`"uid":%d`, nobody), `"message":"connection refused"`}
	testkit.Eventually(t, limit, func() bool {
		return w.lines("proxy.log", refused...) == 3 && w.lines("supervisor.log", refused...) == 1
	}, "four security events are logged")
	if r := w.Run("proxy", "serve", "--proxy", "blue"); r.Code == 0 || !strings.Contains(r.Errout, "chmod 700") {
		t.Errorf("start of a proxy in a directory that other users can read: %v", r)
	}
	testkit.Must(t, os.Chmod(w.Dir, 0o700))
	v.ask("we are let through")
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	exe, err := os.Executable()
	testkit.Must(t, err)
	b, err := os.ReadFile(exe)
	testkit.Must(t, err)
	testkit.WriteProgram(t, to, b)
}

// demand: S11
func TestSharedSecret(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef0123456789abcdef"
	w := newWorld(t)
	path := filepath.Join(testkit.Dir(t), "secret")
	testkit.Must(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
	plain := w.Env
	w.Env = append(w.Env, "HOLDFAST_SECRET_FILE="+path)
	w.Must("proxy", "start")
	c := w.dial(client.Options{Secret: secret})
	v := w.echo(c, "s")
	w.Only("proxy")

	for _, wrong := range []string{"", "x", secret + "x", secret[:31]} {
		if _, err := client.Dial(w.ctx(), client.Options{Dir: w.Dir, Secret: wrong}); code(err) != protocol.CodeUnauthorized {
			t.Errorf("a client with the secret %q: %v", wrong, err)
		}
		nc, _, err := socket.Dial(w.ctx(), w.Path("supervisor.sock"))
		testkit.Must(t, err)
		hello := wire.Hello{Protocol: protocol.Supported(), Version: "v1", Name: "wrong", Secret: wrong}
		if _, _, _, err := link.Dial(nc, hello, zerolog.Nop()); code(err) != protocol.CodeUnauthorized {
			t.Errorf("a proxy with the secret %q: %v", wrong, err)
		}
	}
	w.Env = plain
	for _, args := range [][]string{{"ls"}, {"new", "-d"}} {
		if r := w.Run("proxy", args...); r.Code != 77 {
			t.Errorf("proxy %v without the secret: %v", args, r)
		}
	}
	if r := w.Run("supervisor", "stop", "--sessions=end"); r.Code == 0 || !strings.Contains(r.Errout, "unauthorized") {
		t.Errorf("supervisor stop without the secret: %v", r)
	}
	testkit.Eventually(t, limit, func() bool {
		return w.lines("proxy.log", `"security":true`) == 6 && w.lines("supervisor.log", `"security":true`) == 5
	}, "each refusal is logged as a security event")
	for _, log := range []string{"proxy.log", "supervisor.log"} {
		if w.lines(log, secret[:16]) > 0 {
			t.Errorf("%s contains the secret", log)
		}
	}
	v.ask("and with the secret it goes on")
}

// Input and output must never be logged.
func TestNothingTypedIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_LOG_LEVEL=trace")
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	const private = "correct horse battery staple"
	v.ask(private)
	testkit.Must(t, c.Type(w.ctx(), "s", []byte(private+" typed")))
	v.until(private + " typed")
	if _, err := c.Screen(w.ctx(), "s", client.ScreenOptions{Lines: 5}); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, c.Terminate(w.ctx(), "s", client.End{}))
	if m := v.last(); m.Kind != client.Exited || !strings.Contains(strings.Join(m.Exit.LastLines, "\n"), private) {
		t.Errorf("the exit is %+v", m.Exit)
	}
	if _, err := c.Wait(w.ctx(), "s", limit); err != nil {
		t.Fatal(err)
	}
	for _, log := range []string{"proxy.log", "supervisor.log"} {
		if w.lines(log) == 0 || w.lines(log, private) > 0 || w.lines(log, "battery") > 0 {
			t.Errorf("%s: %d lines, %d of them contain input or output", log, w.lines(log), w.lines(log, "battery"))
		}
	}
}
