//go:build linux

package vm

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

var (
	inside = flag.Bool("inside", false, "this runs in the machine")
	spawn  = flag.Bool("spawn", false, "start processes without end, and nothing else")
	fork   = flag.Bool("fork", false, "fork without end, in each child, too")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *spawn {
		spawnForever()
	}
	if *fork {
		forkForever()
	}
	if *generated != "" {
		if err := generate(); err != nil {
			fmt.Fprintln(os.Stderr, "generator:", err)
			os.Exit(1)
		}
	}
	os.Exit(testkit.Run(m))
}

// unavailable is the exit code of scripts/vm/run if this host can run no machine.
const unavailable = 69

// inMachine runs the test in a machine. memory is in MiB.
func inMachine(t *testing.T, memory int, longest time.Duration, test func(*testing.T)) {
	t.Helper()
	if *inside {
		test(t)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest+time.Minute)
	defer cancel()
	out, err := machineCommand(ctx, t, programs(t), "-m", fmt.Sprint(memory), "-s", fmt.Sprint(int(longest.Seconds()))).CombinedOutput()
	skipUnavailable(t, err, out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		if strings.Contains(s.Text(), "_test.go:") { // a log line of the test in the machine
			t.Log(strings.TrimSpace(s.Text()))
		}
	}
}

// programs builds the programs that run in the machine, and returns their directory.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"build", "-o", dir + "/", "-trimpath", "-buildvcs=false", "holdfast/supervisor", "holdfast/proxy"},
		{"test", "-c", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, "guest"), "holdfast/scripts/vm"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v, %s", args, err, out)
		}
	}
	return dir
}

// machineCommand returns a command that boots a machine and runs this test inside. options are the options of
// scripts/vm/run.
func machineCommand(ctx context.Context, t *testing.T, dir string, options ...string) *exec.Cmd {
	t.Helper()
	args := append(options, filepath.Join(dir, "guest"), "-inside", "-test.v", "-test.run=^"+t.Name()+"$")
	cmd := exec.CommandContext(ctx, filepath.Join(root(t), "scripts/vm/run"), args...)
	cmd.Env = append(os.Environ(), "FILES="+filepath.Join(dir, "supervisor")+" "+filepath.Join(dir, "proxy"))
	return cmd
}

// skipUnavailable skips the test if this host can run no machine.
func skipUnavailable(t *testing.T, err error, out []byte) {
	t.Helper()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == unavailable && os.Getenv("HOLDFAST_REQUIRE_VM") == "" {
		t.Skip(strings.TrimSpace(string(out)))
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	testkit.Must(t, err)
	return dir
}

// spawnForever starts processes that leave their terminal. When no more can be started, it continues to try.
func spawnForever() {
	for {
		if err := exec.Command("/bin/setsid", "/bin/sleep", "100000").Start(); err != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// forkForever forks in each process without end. Each process that ends makes room for another fork.
func forkForever() {
	signal.Ignore(syscall.SIGCHLD) // no process waits for the children
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_FORK, 0, 0, 0) // the child has only this thread of the runtime
	}
}
