//go:build unix

// Package sshhost runs a real sshd on a port of this machine, which stands for another host.
//
// Invariant: sshd and ssh use keys and files of the test alone, never those of the user.
//
// Not here: the programs on the host, which a world has (package shared/testkit/world).
package sshhost

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// limit is how long an event may take that must happen.
const limit = 30 * time.Second

// A Host is a running sshd.
type Host struct {
	Name    string
	Command []string // ssh with a configuration that knows Name
	PID     int      // of sshd; the processes of its connections are its children
	dir     string
}

// Start starts sshd in dir, and gives it a name. Its sessions get the variables env (K=V); the first
// value of a variable counts. If the machine has no sshd, Start skips the test.
func Start(t testing.TB, name, dir string, env []string) *Host {
	t.Helper()
	testkit.Must(t, os.MkdirAll(dir, 0o700))
	sshd := program(t, "sshd", "/usr/sbin/sshd")
	program(t, "ssh")
	h := &Host{Name: name, dir: dir, Command: []string{"ssh", "-F", filepath.Join(dir, "ssh_config")}}
	for _, key := range []string{"host", "user"} {
		h.run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", h.path(key))
	}
	if os.Getuid() == 0 { // sshd of root requires its directory for privilege separation
		testkit.Must(t, os.MkdirAll("/run/sshd", 0o755))
	}
	port := testkit.FreePort(t)
	set := []string{}
	for _, e := range env {
		set = append(set, strconv.Quote(e))
	}
	h.write(t, "sshd_config", "Port "+port, "ListenAddress 127.0.0.1", "HostKey "+h.path("host"), "AuthorizedKeysFile "+h.path("user.pub"),
		"PidFile none", "StrictModes no", "UsePAM no", "PasswordAuthentication no", "KbdInteractiveAuthentication no", "MaxStartups 100",
		"SetEnv "+strings.Join(set, " "))
	h.write(t, "known_hosts", "[127.0.0.1]:"+port+" "+h.read(t, "host.pub"))
	me, err := user.Current()
	testkit.Must(t, err)
	h.write(t, "ssh_config", "Host "+h.Name, "HostName 127.0.0.1", "Port "+port, "User "+me.Username, "IdentityFile "+h.path("user"),
		"IdentitiesOnly yes", "UserKnownHostsFile "+h.path("known_hosts"), "StrictHostKeyChecking yes")
	cmd := exec.Command(sshd, "-D", "-e", "-f", h.path("sshd_config"))
	log, err := os.Create(h.path("sshd.log"))
	testkit.Must(t, err)
	cmd.Stderr = log
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL) // it has not ended, so its pid is its own
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			t.Log(h.read(t, "sshd.log"))
		}
	})
	h.PID = cmd.Process.Pid
	testkit.Eventually(t, limit, func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, "sshd accepts connections")
	return h
}

func (h *Host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *Host) write(t testing.TB, name string, lines ...string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(h.path(name), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}

func (h *Host) read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(h.path(name))
	testkit.Must(t, err)
	return string(b)
}

func (h *Host) run(t testing.TB, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", argv, err, out)
	}
}

// program returns the path of the first program that is installed. If there is none, it skips the
// test.
func program(t testing.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("%s is not installed; scripts/check.sh installs it", names[0])
	return ""
}

// Idle returns when the host serves no connection. The connection of a command that has ended may last a moment longer.
func (h *Host) Idle(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, limit, func() bool { return len(h.connections(t)) == 0 }, "the connections of the host end")
}

// Cut kills the processes that serve the connections of the host, as if the network had ended them,
// and returns how many they were.
func (h *Host) Cut(t testing.TB) (count int) {
	t.Helper()
	for _, pid := range h.connections(t) {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			count++
		}
	}
	return count
}

// connections returns the processes that serve the connections of the host.
func (h *Host) connections(t testing.TB) (pids []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", h.PID))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("sshd has no list of children: %v", err)
	}
	for _, path := range tasks {
		text, _ := os.ReadFile(path) // a thread may have ended
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
