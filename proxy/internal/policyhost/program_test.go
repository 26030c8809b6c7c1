//go:build unix

package policyhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/go-plugin"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"holdfast/proxy/policy"
)

// hostEnv makes the test binary a host with the Config in its value, until it is killed.
const hostEnv = "POLICYHOST_TEST_HOST"

// TestMain is, in a child process, the policy that configEnv describes, or a host.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(configEnv) != "":
		play(os.Getenv(configEnv))
	case os.Getenv(hostEnv) != "":
		var cfg Config
		if err := json.Unmarshal([]byte(os.Getenv(hostEnv)), &cfg); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		cfg.Log = zerolog.New(os.Stderr)
		if _, err := Start(context.Background(), cfg); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {}
	default:
		code := m.Run()
		if ownProgram.dir != "" {
			_ = os.RemoveAll(ownProgram.dir)
		}
		os.Exit(code)
	}
}

// A role describes the policy of a test.
type role struct {
	Kind string // see play
	Life string // path of the socket for reports and commands
	Path string // the program of the kind child
}

// A report is a message of a policy to the test.
type report struct {
	What  string // up; asked, if it has to wait; told, for an event
	Event string
	PID   int
	Group int
	Args  []string
	Env   []string
	Files []int // descriptors that it has inherited
}

// play is the main function of the program.
func play(file string) {
	files := inherited()
	var r role
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	a := &actor{gate: make(chan struct{})}
	if r.Life != "" {
		conn, err := net.Dial("unix", r.Life)
		if err != nil {
			os.Exit(1)
		}
		a.out = json.NewEncoder(conn)
		a.report(report{What: "up", PID: os.Getpid(), Group: syscall.Getpgrp(), Args: os.Args, Env: os.Environ(), Files: files})
		go a.listen(conn)
		go a.watch()
	}
	switch r.Kind {
	case "served": // a proper policy
		policy.Serve(a)
		// With the race detector a program would wait for a second at its end.
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "lingers": // ends at SIGTERM only
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM)
		policy.Serve(a)
		<-told
		a.report(report{What: "told", Event: "to end"})
	case "raw": // sends invalid replies
		a.serve(map[int]plugin.PluginSet{policy.Version: {policy.PluginName: rawPlugin{a: a}}})
	case "newer":
		a.serve(map[int]plugin.PluginSet{policy.Version + 1: {policy.PluginName: rawPlugin{a: a}}})
	case "netrpc":
		plugin.Serve(&plugin.ServeConfig{HandshakeConfig: policy.Handshake, VersionedPlugins: map[int]plugin.PluginSet{policy.Version: {policy.PluginName: netRPC{}}}})
	case "plaintext": // answers the handshake without TLS
		ln, err := net.Listen("unix", filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "s"))
		if err != nil {
			os.Exit(1)
		}
		fmt.Printf("1|%d|unix|%s|grpc\n", policy.Version, ln.Addr())
		_ = grpc.NewServer().Serve(ln)
	case "exits":
		os.Exit(7)
	case "prints":
		fmt.Println("hello, world")
		select {}
	case "silent":
		select {}
	case "nowhere": // names a socket on which it does not listen
		fmt.Printf("1|%d|unix|/nowhere|grpc\n", policy.Version)
		select {}
	}
}

// inherited returns the inherited descriptors. Those that Go has opened are close-on-exec.
func inherited() (fds []int) {
	for fd := range 1024 {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// ownProgram is a copy of this test's program in a directory that only the user can write.
var ownProgram struct {
	once sync.Once
	dir  string
	err  error
}

func programPath(t testing.TB) string {
	t.Helper()
	ownProgram.once.Do(func() {
		var from string
		if from, ownProgram.err = os.Executable(); ownProgram.err != nil {
			return
		}
		if ownProgram.dir, ownProgram.err = os.MkdirTemp("/tmp", "hf"); ownProgram.err == nil {
			ownProgram.err = copyFile(filepath.Join(ownProgram.dir, "policy"), from)
		}
	})
	if ownProgram.err != nil {
		t.Fatal(ownProgram.err)
	}
	return filepath.Join(ownProgram.dir, "policy")
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
