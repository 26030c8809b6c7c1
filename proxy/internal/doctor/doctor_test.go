//go:build unix

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/config"
	"holdfast/shared/keeperstate"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// A machine is the fake of a machine: its directories, and a /proc.
type machine struct {
	t *testing.T
	Facts
	dir string // the directory of all its files
}

// healthy returns a machine on which both processes run.
func healthy(t *testing.T) *machine {
	m := &machine{t: t, dir: testkit.Dir(t)}
	lies := filepath.Join(m.dir, "hf")
	m.Dirs = config.Dirs{Runtime: lies, State: lies, Config: lies}
	m.Proxy, m.Version, m.Proc, m.Ptmx = "proxy", "v2", filepath.Join(m.dir, "proc"), "/dev/ptmx"
	m.must(os.Mkdir(lies, 0o700))
	m.file("proc/sys/kernel/pty/nr", "79")
	m.file("proc/sys/kernel/pty/max", "100")
	m.file("run/systemd/private", "")
	m.Env = func(name string) string {
		return map[string]string{"XDG_RUNTIME_DIR": filepath.Join(m.dir, "run")}[name]
	}
	m.Files = func() (uint64, uint64, error) { return 79, 100, nil }
	m.Locked = func(string) (bool, error) { return false, errors.New("asked, though there is a /proc") }
	m.Output = m.prints(map[string]string{"loginctl": "Linger=yes\n"})
	m.Listens = func(_ context.Context, path string) error {
		nc, err := net.Dial("unix", path)
		if err != nil {
			return ErrNotRunning
		}
		return nc.Close()
	}
	m.process(9, "/bin/supervisor (deleted)", "supervisor", "--background", "--dir", lies) // a keeper is not replaced by an upgrade
	m.process(10, "/bin/supervisor", "supervisor", "run", "--background", "--dir", lies)
	m.process(20, "/bin/proxy", "proxy", "serve", "--proxy", "proxy", "--dir="+lies)
	m.process(30, "/bin/bash", "bash") // the shell of a session
	m.file("proc/30/stat", "30 (a b) c) S 10 0")
	m.file("proc/10/stat", "10 (supervisor) S 9 0")
	m.locks(9, "supervisor.sock")
	m.serves(10, "supervisor.sock")
	m.serves(20, "proxy.sock")
	m.serves(20, "proxy.web.sock")
	m.process(40, "/bin/proxy", "proxy", "--dir", lies, "attach", "serve") // a client of the proxy
	m.process(41, "/bin/supervisor", "supervisor", "--dir", m.dir)         // a supervisor of other directories
	m.process(42, "/bin/supervisor", "supervisor", "--dir", lies, "stop")
	m.process(43, "/bin/supervisor", "supervisor", "--dir", lies) // whose directories were resolved to other ones
	m.link("proc/43/fd/9", "/elsewhere/supervisor.sock.lock")
	m.asked(supervisor("v2"), nil)
	m.Held = func() *keeperstate.Held { return nil }
	m.Elsewhere = func(context.Context) []Place { return nil }
	m.Web = func(bool) error { return nil }
	m.Gate = func(context.Context) ([]Host, error) { return []Host{{Name: "red", IsReachable: true}}, nil }
	m.joined(&Agent{Host: "red", Gate: "gate:7684", IsRunning: true, IsConnected: true}, nil)
	m.serving(&ProxyStatus{protocol.ProcessStatus{PID: 20, Version: "v2", Protocol: protocol.Supported()}, true}, nil)
	return m
}

// supervisor returns the status of a supervisor that has three sessions and a keeper.
func supervisor(version string) *protocol.ProcessStatus {
	return &protocol.ProcessStatus{PID: 10, Version: version, Protocol: protocol.Supported(), Sessions: 3,
		Keeper: &protocol.KeeperStatus{PID: 9, Sessions: 3, Starts: 1}}
}

func (m *machine) must(err error) {
	m.t.Helper()
	testkit.Must(m.t, err)
}

func (m *machine) file(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	m.must(os.MkdirAll(filepath.Dir(path), 0o700))
	m.must(os.WriteFile(path, []byte(text), 0o600))
}

func (m *machine) link(name, to string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	m.must(os.MkdirAll(filepath.Dir(path), 0o700))
	_ = os.Remove(path)
	m.must(os.Symlink(to, path))
}

// process makes a process that has three files open, of ten allowed.
func (m *machine) process(pid int, exe string, args ...string) {
	of := fmt.Sprintf("proc/%d/", pid)
	m.link(of+"exe", exe)
	m.file(of+"cmdline", strings.Join(args, "\x00")+"\x00")
	m.file(of+"environ", "HOME=/nowhere\x00")
	m.file(of+"stat", fmt.Sprintf("%d (%s) S 1 0", pid, args[0]))
	m.file(of+"limits", "Limit   Soft Limit   Hard Limit   Units\nMax open files            10                   4096                 files\n")
	for fd := range 3 {
		m.link(of+"fd/"+strconv.Itoa(fd), "/dev/null")
	}
}

// serves makes a process hold a socket's lock, and listens.
func (m *machine) serves(pid int, name string) {
	m.locks(pid, name)
	m.listens(name)
}

func (m *machine) locks(pid int, name string) {
	m.file("hf/"+name+".lock", "")
	m.link(fmt.Sprintf("proc/%d/fd/of-%s", pid, name), m.Dirs.Socket(name)+".lock")
}

func (m *machine) listens(name string) *net.UnixListener {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: m.Dirs.Socket(name), Net: "unix"})
	m.must(err)
	m.t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// stale leaves a socket on which no process listens.
func (m *machine) stale(name string) {
	ln := m.listens(name)
	ln.SetUnlinkOnClose(false)
	m.must(ln.Close())
}

// ends removes a process. Its locks are free then.
func (m *machine) ends(pid int) { m.must(os.RemoveAll(filepath.Join(m.Proc, strconv.Itoa(pid)))) }

func (m *machine) asked(s *protocol.ProcessStatus, err error) {
	m.Supervisor = func(context.Context) (*protocol.ProcessStatus, error) { return s, err }
}

func (m *machine) serving(s *ProxyStatus, err error) {
	m.Serving = func(context.Context, bool) (*ProxyStatus, error) { return s, err }
}

func (m *machine) joined(a *Agent, err error) {
	m.Agent = func(context.Context) (*Agent, error) { return a, err }
}

// prints returns a function that runs programs: it returns their outputs, and fails for other programs.
func (m *machine) prints(what map[string]string) func(context.Context, string, ...string) (string, error) {
	return func(_ context.Context, name string, _ ...string) (string, error) {
		if text, ok := what[name]; ok {
			return text, nil
		}
		return "", errors.New("no " + name)
	}
}

// bad returns the findings that are not ok.
func bad(all []Finding) (found []Finding) {
	for _, f := range all {
		if f.Severity != OK {
			found = append(found, f)
		}
	}
	return found
}

func TestHealthy(t *testing.T) {
	found := Run(t.Context(), healthy(t).Facts)
	if got := bad(found); len(got) > 0 || Worst(found) != OK {
		t.Errorf("%+v", got)
	}
	var checks []string
	for _, f := range found {
		checks = append(checks, f.Check)
	}
	if got, want := strings.Join(checks, " "), "directories places paths settings sockets ptmx files linger supervisor keeper cages recordings bucket reports proxy fleet agent skew orphans"; got != want {
		t.Errorf("checks %s, want %s", got, want)
	}
}

// Each fault is caused on purpose, and must be the only finding.
func TestFindings(t *testing.T) {
	timeout := fmt.Errorf("hello: %w", context.DeadlineExceeded)
	for _, tt := range []struct {
		name     string
		spoil    func(*machine)
		check    string
		severity Severity
		says     string // a part of the finding
		fix      string // a part of the fix
	}{
		{"too open", func(m *machine) { m.must(os.Chmod(m.Dirs.State, 0o755)) },
			"directories", Error, "0755", "chmod 700"},
		{"too open, with sockets of others", func(m *machine) {
			m.stale("mysql.sock")
			m.file("hf/x.sock", "")
			m.must(os.Chmod(m.Dirs.State, 0o777))
		}, "directories", Error, "0777", "choose a directory"},
		{"below what others can write", func(m *machine) { m.must(os.Chmod(m.dir, 0o777)) },
			"directories", Error, "other users can replace", "choose another directory"},
		{"a link", func(m *machine) {
			m.link("link", m.Dirs.State)
			m.Dirs.State = filepath.Join(m.dir, "link")
		}, "directories", Error, "symbolic link", "name the directory itself"},
		{"no directory", func(m *machine) {
			m.file("file", "")
			m.Dirs.Config = filepath.Join(m.dir, "file")
		}, "directories", Error, "not a directory", "choose another directory"},
		{"another's", func(m *machine) {
			if os.Geteuid() != 0 {
				m.t.Skip("only root can give a directory away")
			}
			m.must(os.Chown(m.Dirs.State, 65534, -1))
		}, "directories", Error, "belongs to uid 65534", "choose another directory"},
		{"another's file", func(m *machine) {
			if os.Geteuid() != 0 {
				m.t.Skip("only root can give a file away")
			}
			m.file("hf/proxy.log", "")
			m.must(os.Chown(filepath.Join(m.Dirs.State, "proxy.log"), 65534, -1))
		}, "directories", Warning, "may not start: proxy.log", "chown -R 0 "},
		{"a directory at the place of a file", func(m *machine) { m.file("hf/keeping.lock/x", "") },
			"directories", Warning, "may not start: keeping.lock", "move"},
		{"not made yet", func(m *machine) { m.Dirs.Config = filepath.Join(m.dir, "a/b") },
			"directories", Note, "does not exist yet", "next command"},
		{"cannot be made", func(m *machine) {
			m.file("file", "")
			m.Dirs.Config = filepath.Join(m.dir, "file/b")
		}, "directories", Error, "cannot be made", "log in again"},
		{"may not be made", func(m *machine) {
			if os.Geteuid() == 0 {
				m.t.Skip("root can create the directory")
			}
			m.must(os.Mkdir(filepath.Join(m.dir, "shut"), 0o500))
			m.Dirs.Config = filepath.Join(m.dir, "shut/b")
		}, "directories", Error, "permission denied", "log in again"},
		{"daemons elsewhere", func(m *machine) {
			m.Elsewhere = func(context.Context) []Place {
				return []Place{{Dir: "/h/run", Runs: "a supervisor of yours runs", Command: "proxy ls --dir /h/run"}}
			}
		}, "places", Warning, "a supervisor of yours runs in /h/run", "proxy ls --dir /h/run"},
		{"sockets in /tmp", func(m *machine) {
			m.Dirs.Runtime = "/tmp/holdfast-doctor-" + filepath.Base(m.dir)
			m.must(os.Mkdir(m.Dirs.Runtime, 0o700))
			m.t.Cleanup(func() { _ = os.Remove(m.Dirs.Runtime) })
		}, "paths", Note, "too long", "shorter"},
		{"a variable of an app", func(m *machine) { m.Variables = []string{"HOLDFAST_TASK_ID"} }, "settings", Note, "HOLDFAST_TASK_ID", "unset"},
		{"bad settings", func(m *machine) { m.Settings = errors.New("grace must be short") },
			"settings", Error, "grace", config.FileName},
		{"no program", func(m *machine) { m.Program = errors.New("no supervisor") },
			"settings", Warning, "no supervisor", "install"},
		{"no program, nor supervisor", func(m *machine) {
			m.Program = errors.New("no program")
			m.asked(nil, protocol.Errorf(protocol.CodeUnauthorized, "secret"))
		}, "settings", Error, "no program", "install"},
		{"no policy", func(m *machine) { m.Policy = errors.New("anybody may write it") },
			"settings", Error, "anybody may write it", "--policy none"},
		{"no address of the page", func(m *machine) {
			m.Web = func(mustBeFree bool) error {
				if mustBeFree {
					return errors.New("asked for the port of the proxy that serves")
				}
				return errors.New("10.0.0.1 is not here")
			}
		}, "settings", Error, "10.0.0.1 is not here", "HOLDFAST_WEB"},
		{"a stale socket", func(m *machine) { m.stale("dev.sock") },
			"sockets", Warning, "dev.sock is stale", "proxy start --proxy dev"},
		{"the supervisor's stale socket", func(m *machine) {
			m.ends(9)
			m.ends(10)
			m.must(os.Remove(m.Dirs.Socket("supervisor.sock")))
			m.stale("supervisor.sock")
			m.asked(nil, ErrNotRunning)
		}, "sockets", Warning, "supervisor.sock is stale", "proxy start"},
		{"a lock without a socket", func(m *machine) { m.locks(20, "proxy.control.sock") },
			"sockets", Warning, "process 20 holds its lock", "wait 10 s"},
		{"a socket without a lock", func(m *machine) { m.listens("dev.sock") },
			"sockets", Warning, "without its lock", "wait 10 s"},
		{"no socket", func(m *machine) { m.file("hf/dev.sock", "") },
			"sockets", Error, "not a socket", "remove it"},
		{"a socket that does not answer", func(m *machine) {
			m.stale("dev.sock")
			m.Listens = func(context.Context, string) error { return timeout }
		}, "sockets", Note, "unknown whether a process listens", ""},
		{"many terminals", func(m *machine) { m.file("proc/sys/kernel/pty/nr", "80\n") },
			"ptmx", Warning, "80 terminals of 100", "kernel.pty.max=4096"},
		{"too many terminals", func(m *machine) { m.file("proc/sys/kernel/pty/nr", "95\n") },
			"ptmx", Error, "95 terminals of 100", "kernel.pty.max"},
		{"unknown terminals", func(m *machine) { m.file("proc/sys/kernel/pty/max", "many") },
			"ptmx", Note, "unknown", ""},
		{"no ptmx", func(m *machine) { m.Ptmx = filepath.Join(m.dir, "ptmx") },
			"ptmx", Error, "no such file", "devpts"},
		{"our files", func(m *machine) { m.Files = func() (uint64, uint64, error) { return 80, 100, nil } },
			"files", Warning, "this process has 80 files open of 100", "ulimit -n"},
		{"few files", func(m *machine) { m.Files = func() (uint64, uint64, error) { return 10, 24, nil } },
			"files", Warning, "may open 24 files", "ulimit -n"},
		{"unknown files", func(m *machine) { m.Files = func() (uint64, uint64, error) { return 0, 0, errors.ErrUnsupported } },
			"files", Note, "unknown of this process", ""},
		{"the supervisor's files", func(m *machine) {
			for i := range 4 {
				m.link(fmt.Sprintf("proc/10/fd/1%d", i), "/dev/ptmx")
			}
		}, "files", Warning, "supervisor 10 has 8 files open of 10", "LimitNOFILE"},
		{"the proxy's files, without a limit that is known", func(m *machine) { m.file("proc/20/limits", "") },
			"files", Note, "unknown of proxy 20", ""},
		{"no linger", func(m *machine) {
			m.Output = m.prints(map[string]string{"loginctl": "Linger=no\n", "busctl": "b true\n"})
		}, "linger", Note, "logout may: yes", "loginctl enable-linger"},
		{"no linger, and the rest unknown", func(m *machine) { m.Output = m.prints(map[string]string{"loginctl": "Linger=no"}) },
			"linger", Note, "unknown", "loginctl enable-linger"},
		{"no loginctl", func(m *machine) { m.Output = m.prints(nil) },
			"linger", Note, "unknown whether", "loginctl enable-linger"},
		{"no supervisor", func(m *machine) {
			m.ends(9)
			m.ends(10)
			m.must(os.Remove(m.Dirs.Socket("supervisor.sock")))
			m.asked(nil, ErrNotRunning)
		}, "supervisor", Note, "none runs", "next command"},
		{"a supervisor that does not answer", func(m *machine) { m.asked(nil, timeout) },
			"supervisor", Error, "process 10 does not answer, which does not mean that it or its sessions have ended: hello: context deadline exceeded; " +
				"SIGTERM would end its sessions, programs that run: 1", "leave it alone"},
		{"a stopped supervisor", func(m *machine) {
			m.asked(nil, timeout)
			m.file("proc/10/stat", "10 (supervisor) T 9 0")
		}, "supervisor", Error, "process 10 does not answer", "kill -CONT 10"},
		{"a supervisor with too many connections", func(m *machine) { m.asked(nil, fmt.Errorf("link hello: %w", io.EOF)) },
			"supervisor", Warning, "process 10 runs, and has closed the connection of this program: link hello: EOF", "look again"},
		{"a supervisor that refuses us", func(m *machine) { m.asked(nil, protocol.Errorf(protocol.CodeUnauthorized, "wrong secret")) },
			"supervisor", Error, "wrong secret", "secret_file"},
		{"a supervisor of another protocol", func(m *machine) {
			m.asked(nil, protocol.Errorf(protocol.CodeProtocolMismatch, "nothing in common"))
		}, "supervisor", Error, "nothing in common", "its sessions"},
		{"no proxy", func(m *machine) {
			m.ends(20)
			m.must(os.Remove(m.Dirs.Socket("proxy.sock")))
			m.must(os.Remove(m.Dirs.Socket("proxy.web.sock")))
			m.serving(nil, ErrNotRunning)
		}, "proxy", Note, "none runs", "next command"},
		{"a proxy that does not answer", func(m *machine) { m.serving(nil, timeout) },
			"proxy", Error, "process 20 does not answer", "costs no session: kill 20"},
		{"a stopped proxy", func(m *machine) {
			m.serving(nil, timeout)
			m.file("proc/20/stat", "20 (proxy) T 1 0")
		}, "proxy", Error, "process 20 does not answer", "kill -CONT 20"},
		{"a gate that is not reached", func(m *machine) {
			m.Gate = func(context.Context) ([]Host, error) { return nil, errors.New("connection refused") }
		}, "fleet", Warning, "cannot be reached: connection refused", "proxy gate runs"},
		{"another gate", func(m *machine) {
			m.Gate = func(context.Context) ([]Host, error) {
				return nil, protocol.Errorf(protocol.CodeUnauthorized, "another fingerprint")
			}
		}, "fleet", Warning, "another fingerprint", "proxy gate client-token"},
		{"a gate's text that was cut", func(m *machine) {
			m.Gate = func(context.Context) ([]Host, error) { return nil, fmt.Errorf("%w: 64 digits", ErrNotAsked) }
		}, "fleet", Warning, "64 digits", "proxy gate client-token"},
		{"hosts that are away", func(m *machine) {
			m.Gate = func(context.Context) ([]Host, error) {
				hosts := []Host{{Name: "red", IsReachable: true}}
				for i := range 12 {
					hosts = append(hosts, Host{Name: fmt.Sprint("away", i), Release: "v1"})
				}
				return hosts, nil
			}
		}, "fleet", Warning, "not connected: away0, away1, away2, away3, away4, away5, away6, away7, away8, away9, and 2 more", "proxy gate revoke"},
		{"a host of another release", func(m *machine) {
			m.Gate = func(context.Context) ([]Host, error) { return []Host{{"red", true, "v1"}, {"blue", true, "v2"}}, nil }
		}, "fleet", Note, "(v2): red (v1)", "proxy upgrade"},
		{"an agent that does not run", func(m *machine) { m.joined(&Agent{Host: "red", Gate: "gate:7684"}, nil) },
			"agent", Warning, "gate:7684 as red, but its agent does not run", "proxy join"},
		{"an agent that is not connected", func(m *machine) {
			m.joined(&Agent{Host: "red", Gate: "gate:7684", IsRunning: true, Reason: "the key was revoked"}, nil)
		}, "agent", Warning, "tries again: the key was revoked", "proxy leave"},
		{"an agent that does not answer", func(m *machine) { m.joined(nil, timeout) },
			"agent", Warning, "unknown: hello", "proxy join"},
		{"a proxy that refuses us", func(m *machine) { m.serving(nil, protocol.Errorf(protocol.CodeUnauthorized, "wrong secret")) },
			"proxy", Error, "wrong secret", "secret_file"},
		{"a proxy whose policy fails", func(m *machine) {
			m.serving(nil, &protocol.Error{Code: protocol.CodePolicyUnavailable, Message: "the policy did not answer"})
		}, "proxy", Error, "its policy fails", "HOLDFAST_POLICY=none proxy --handoff"},
		{"a proxy that was not asked", func(m *machine) { m.serving(nil, fmt.Errorf("%w: why", ErrNotAsked)) },
			"proxy", Note, "unknown: it was not asked: why", "repair that first"},
		{"an older proxy", func(m *machine) { m.Version = "v3" },
			"skew", Note, "version v2, this program of v3", "proxy --handoff"},
		{"an older supervisor", func(m *machine) { m.asked(supervisor("v1"), nil) },
			"skew", Note, "the supervisor of v1; they speak protocol 1", "proxy upgrade"},
		{"a supervisor without a keeper", func(m *machine) {
			m.ends(9)
			s := supervisor("v2")
			s.Keeper = nil
			m.asked(s, nil)
		}, "keeper", Warning, "its sessions die with it", "leave it"},
		{"a session that is not kept", func(m *machine) {
			s := supervisor("v2")
			s.Keeper.Sessions = 2
			m.asked(s, nil)
		}, "keeper", Warning, "holds only 2 of 3 sessions", "supervisor.log"},
		{"a supervisor that has died", func(m *machine) {
			s := supervisor("v2")
			s.Keeper.Starts, s.Keeper.Last = 2, "SIGSEGV"
			m.asked(s, nil)
		}, "keeper", Note, "started 2 times, and the one before ended: SIGSEGV", "supervisor.crash"},
		{"sessions without control groups", func(m *machine) {
			s := supervisor("v2")
			s.Cages = &protocol.CagesStatus{Off: "the cgroup /x is not delegated"}
			m.asked(s, nil)
		}, "cages", Note, "and so no limits: the cgroup /x is not delegated", "systemd-run --user --scope -p Delegate=yes supervisor"},
		{"control groups with some limits", func(m *machine) {
			s := supervisor("v2")
			s.Cages = &protocol.CagesStatus{Dir: "/x", Controllers: []string{"memory", "pids"}}
			m.asked(s, nil)
		}, "cages", Note, "in /x, with limits of memory, pids only", "user@.service"},
		{"a control group that is left", func(m *machine) {
			s := supervisor("v2")
			s.Cages = &protocol.CagesStatus{Dir: "/x", Controllers: []string{"cpu", "memory", "pids"}, Left: []string{"/x/session-a"}}
			m.asked(s, nil)
		}, "cages", Note, "the control group of sessions that have ended: /x/session-a", "kill ID --all"},
		{"a full disk", func(m *machine) {
			s := supervisor("v2")
			s.Recording = &protocol.RecordingStatus{Failing: 2, Error: "no space left on device"}
			m.asked(s, nil)
		}, "recordings", Warning, "stored on disk: 2; they run on, but would not outlive the machine: no space left on device", "make room"},
		{"a bucket that refuses a put", func(m *machine) {
			m.Bucket = func(context.Context) (string, error) {
				return "put", errors.New("put s3://b/x: the server answers 403")
			}
		}, "bucket", Warning, "cannot be stored or read: put s3://b/x: the server answers 403", "s3:PutObject"},
		{"a bucket that refuses a delete", func(m *machine) {
			m.Bucket = func(context.Context) (string, error) { return "delete", errors.New("the server answers 403") }
		}, "bucket", Warning, "old ones cannot be deleted", "s3:DeleteObject"},
		{"a bucket whose server is silent", func(m *machine) {
			m.Bucket = func(context.Context) (string, error) {
				return "list", fmt.Errorf("list s3://b: %w", context.DeadlineExceeded)
			}
		}, "bucket", Warning, "not answered within 3s: list s3://b", "recordings_endpoint"},
		{"sealed recordings", func(m *machine) {
			s := supervisor("v2")
			s.Recording = &protocol.RecordingStatus{Sealed: 3}
			m.asked(s, nil)
		}, "recordings", Warning, "cannot be read: 3", "durable_key"},
		{"stored sessions whose description is lost", func(m *machine) {
			const segment = "0000000000000000000"
			for name, meta := range map[string]string{"zeroed@1": "\x00\x00", "empty@1": "", "well@1": `{"version":1}`, "forgotten@1~": "", "newer@1": `{"version":2}`} {
				m.file("hf/sessions/"+name+"/meta.json", meta)
				m.file("hf/sessions/"+name+"/"+segment, "")
			}
			m.file("hf/sessions/gone@1/"+segment, "")
			m.file("hf/sessions/unbegun@1/key", "")
			m.file("hf/sessions/clock", "")
		}, "recordings", Warning, "labels are lost: empty@1, gone@1, zeroed@1", "check the disk"},
		{"a crash loop", func(m *machine) {
			m.ends(10)
			m.asked(nil, protocol.Errorf(protocol.CodeSupervisorUnreachable, "held"))
			m.Held = func() *keeperstate.Held { return &keeperstate.Held{PID: 9, Deaths: 5} }
		}, "supervisor", Error, "5 supervisors died within a minute", "kill -HUP 9"},
		{"a screen that was lost", func(m *machine) { m.file("hf/core-x-1.json", "") },
			"reports", Warning, "core-x-1.json", "report it"},
		{"no common protocol", func(m *machine) {
			s := supervisor("v1")
			s.Protocol = protocol.VersionRange{Min: 90, Max: 99}
			m.asked(s, nil)
		}, "skew", Error, "90-99", "proxy --handoff"},
		{"a proxy without its supervisor", func(m *machine) {
			m.serving(&ProxyStatus{protocol.ProcessStatus{PID: 20, Version: "v2", Protocol: protocol.Supported()}, false}, nil)
		}, "skew", Error, "does not reach the supervisor", "proxy --handoff"},
		{"a newer proxy on disk", func(m *machine) { m.link("proc/20/exe", "/bin/proxy (deleted)") },
			"skew", Note, "program of proxy 20 was replaced", "proxy --handoff"},
		{"a newer supervisor on disk", func(m *machine) { m.link("proc/10/exe", "/bin/supervisor (deleted)") },
			"skew", Note, "program of supervisor 10 was replaced", "proxy upgrade"},
		{"a supervisor without its lock", func(m *machine) {
			m.process(50, "/bin/supervisor.old", "supervisor", "--dir", m.Dirs.State)
			m.link("proc/50/fd/9", m.Dirs.Socket("supervisor.sock")+".lock (deleted)")
			m.file("proc/51/stat", "51 (sh) S 50 0")
		}, "orphans", Warning, "supervisor 50 holds no lock here, so no client reaches its sessions; SIGTERM would end its sessions, programs that run: 1", "end supervisor 10, which has its place, when its sessions may end: kill -TERM 10; SIGTERM would"},
		{"a proxy without its lock", func(m *machine) {
			m.process(50, "/bin/proxy", "proxy", "--handoff", "--foreground")
			m.file("proc/50/environ", "A=b\x00HOLDFAST_DIR="+m.Dirs.State+"\x00")
		}, "orphans", Warning, "proxy 50 holds no lock", "costs no session: kill 50"},
		{"an orphan that was started where it looks", func(m *machine) {
			m.process(50, "/bin/proxy", "proxy", "serve", "--dir", "hf")
			m.link("proc/50/cwd", m.dir)
		}, "orphans", Warning, "proxy 50 holds no lock", "kill 50"},
		{"no /proc", func(m *machine) {
			m.Proc = ""
			m.Locked = func(string) (bool, error) { return true, nil }
		}, "orphans", Note, "unknown", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := healthy(t)
			m.t = t
			tt.spoil(m)
			var got, others []Finding
			for _, f := range bad(Run(t.Context(), m.Facts)) {
				if strings.Contains(f.Fix, "-9") || strings.Contains(f.Fix, "KILL") {
					t.Errorf("%+v", f)
				}
				if f.Check == tt.check {
					got = append(got, f)
				} else {
					others = append(others, f)
				}
			}
			if len(got) != 1 || got[0].Severity != tt.severity || !strings.Contains(got[0].Finding, tt.says) || !strings.Contains(got[0].Fix, tt.fix) {
				t.Fatalf("%s: got %+v, want %s, %q, %q", tt.check, got, tt.severity, tt.says, tt.fix)
			}
			for _, f := range others {
				if !strings.Contains(tt.name, "supervisor") || f.Check != "supervisor" {
					t.Errorf("another finding: %+v", f)
				}
			}
		})
	}
}

// If no proxy runs, the port of the page must be free for the next one.
func TestPageInUse(t *testing.T) {
	m := healthy(t)
	m.serving(nil, ErrNotRunning)
	m.Web = func(mustBeFree bool) error {
		if mustBeFree {
			return errors.New("in use")
		}
		return nil
	}
	got := newInspection(t.Context(), m.Facts).settings()
	if len(got) != 1 || got[0].Severity != Error || !strings.Contains(got[0].Finding, "the next proxy will not serve: in use") {
		t.Errorf("got %+v", got)
	}
}

func TestPathTooLong(t *testing.T) {
	m := healthy(t)
	m.Dirs.Runtime = "/" + strings.Repeat("x", socket.MaxPath-len("//proxy.control.sock"))
	l := newInspection(t.Context(), m.Facts)
	if got := l.paths(); got[0].Severity != OK {
		t.Errorf("a path of the greatest length: %+v", got)
	}
	l.Dirs.Runtime += "x"
	if got := l.paths(); got[0].Severity != Error || !strings.Contains(got[0].Fix, "shorter") {
		t.Errorf("a path that is too long: %+v", got)
	}
	l.Proxy = "p"
	if got := l.paths(); got[0].Severity != OK {
		t.Errorf("with a shorter name: %+v", got)
	}
}

// A process that begins to listen during the check is not a finding.
func TestAboutToServe(t *testing.T) {
	m := healthy(t)
	answer, n := m.Supervisor, 0
	m.Supervisor = func(ctx context.Context) (*protocol.ProcessStatus, error) {
		if n++; n == 1 {
			return nil, ErrNotRunning
		}
		return answer(ctx)
	}
	if got := bad(Run(t.Context(), m.Facts)); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// Run changes no file, whatever it finds.
func TestChangesNothing(t *testing.T) {
	m := healthy(t)
	m.stale("dev.sock")
	m.file("hf/dev.sock.lock", "17")
	m.Dirs.Config = filepath.Join(m.dir, "not/there")
	list := func() (all string) {
		m.must(filepath.WalkDir(m.dir, func(path string, e os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			fi, err := e.Info()
			all += fmt.Sprintln(path, fi.Mode(), fi.ModTime())
			return err
		}))
		return all
	}
	before := list()
	Run(t.Context(), m.Facts)
	if after := list(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestWorst(t *testing.T) {
	for want, severities := range map[int][]Severity{0: {Note, OK}, 1: {OK, Warning, Note}, 2: {Error, Warning}} {
		var all []Finding
		for _, s := range severities {
			all = append(all, Finding{Severity: s})
		}
		if got := Worst(all).ExitCode(); got != want {
			t.Errorf("%v: exit %d, want %d", severities, got, want)
		}
	}
}

// A command that waits tells only of a supervisor that is silent. One that closes the connection, because many commands
// ask it at once, is not.
func TestUnanswered(t *testing.T) {
	for err, want := range map[error]int{context.DeadlineExceeded: 1, io.EOF: 0} {
		m := healthy(t)
		m.asked(nil, fmt.Errorf("link hello: %w", err))
		if got := Unanswered(t.Context(), m.Facts); len(got) != want {
			t.Errorf("%v: %+v, want %d findings", err, got, want)
		}
	}
}
