//go:build unix

// Package s3server runs a real S3 server, the gateway of Versity, on a port of this machine.
//
// Invariant: the objects are files of the test, and outlive the server.
//
// Not here: the source of the program, which is a module of its own (directory gateway), because to compile it takes
// minutes of processor time. So only tests of the long mode may use this package.
package s3server

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

const (
	// Bucket is the name of the only bucket.
	Bucket = "recordings"
	// KeyID and Secret are the credentials of the only user.
	KeyID  = "the-key-of-the-test"
	Secret = "the-secret-key-of-the-test"

	// startLimit is how long the server may take until it accepts connections.
	startLimit = time.Minute
)

// A Server is an S3 server that can be stopped and started again.
type Server struct {
	Dir     string // of the objects, whose paths are BUCKET/KEY
	t       testing.TB
	exe     string
	address string
	cmd     *exec.Cmd // nil if it does not run
}

// Start compiles the server and starts it. If this is not the long mode, Start skips the test.
func Start(t testing.TB) *Server {
	t.Helper()
	if os.Getenv("HOLDFAST_LONG") == "" {
		t.Skip("compiles an S3 server; HOLDFAST_LONG=1 runs it")
	}
	s := &Server{t: t, Dir: t.TempDir(), exe: filepath.Join(t.TempDir(), "gateway"), address: testkit.FreeAddress(t)}
	testkit.Must(t, os.Mkdir(filepath.Join(s.Dir, Bucket), 0o700))
	source := strings.TrimSpace(run(t, "go", "list", "-f", "{{.Dir}}", "holdfast/shared/testkit/s3server"))
	run(t, "go", "build", "-C", filepath.Join(source, "gateway"), "-o", s.exe, ".")
	t.Cleanup(func() {
		if s.cmd != nil {
			s.Kill()
		}
	})
	s.Restart()
	return s
}

// Endpoint returns the address of the server.
func (s *Server) Endpoint() string { return "http://" + s.address }

// Restart starts the server, which must not run, at the address that it had before.
func (s *Server) Restart() {
	s.t.Helper()
	log, err := os.OpenFile(s.exe+".log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	testkit.Must(s.t, err)
	defer func() { _ = log.Close() }() // the server has a duplicate
	s.cmd = exec.Command(s.exe, s.address, s.Dir)
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = append(os.Environ(), "AWS_ACCESS_KEY_ID="+KeyID, "AWS_SECRET_ACCESS_KEY="+Secret), log, log
	testkit.Must(s.t, s.cmd.Start())
	testkit.Eventually(s.t, startLimit, func() bool {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, "the S3 server accepts connections")
}

// Kill ends the server with SIGKILL.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

func run(t testing.TB, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", argv, err)
	}
	return string(out)
}
