//go:build unix

package policyhost

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// The program inherits only the variables that it needs, no descriptors, and no signals of the terminal.
func TestIsolation(t *testing.T) {
	s := newStage(t, "served")
	for _, name := range []string{"HOLDFAST_TOKEN", "HOLDFAST_SECRET", "NOTIFY_SOCKET", "LISTEN_FDS", "PLUGIN_OURS", "LC_TEST", "XDG_TEST", "HOLDFAST_DIR"} {
		t.Setenv(name, "x")
	}
	leftover, err := unix.Dup(0) // a descriptor without close-on-exec, as a launcher may leave one
	testkit.Must(t, err)
	defer unix.Close(leftover)
	h, p := s.start(s.config())
	var names []string
	for _, kv := range p.Env {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
		lib := strings.HasPrefix(name, "PLUGIN_") && name != "PLUGIN_OURS" || name == "HOLDFAST_POLICY" || name == configEnv
		if !lib && !allowed(name) {
			t.Errorf("the program has the variable %s", kv)
		}
	}
	for _, name := range []string{"PATH", "LC_TEST", "XDG_TEST", "HOLDFAST_DIR", configEnv, "PLUGIN_CLIENT_CERT"} {
		if !slices.Contains(names, name) {
			t.Errorf("the program lacks the variable %s", name)
		}
	}
	if p.Group != p.PID {
		t.Errorf("the process group is %d, want %d", p.Group, p.PID)
	}
	if want := []int{0, 1, 2}; !slices.Equal(p.Files, want) {
		t.Errorf("the descriptors are %v, want %v", p.Files, want)
	}
	if len(p.told) != 0 {
		t.Error("the standard input has ended")
	}
	h.mu.Lock()
	_ = h.run.program.stdin.Close() // the end of the proxy closes it, too
	h.mu.Unlock()
	if got := testkit.Within(t, limit, "the end of its standard input", p.told); got != "input ended" {
		t.Errorf("got %s", got)
	}
}

// A policy ends when its proxy is killed, even one that does not read its standard input, if the system has a signal
// for that.
func TestHostIsKilled(t *testing.T) {
	for _, kind := range []string{"served", "raw"} {
		t.Run(kind, func(t *testing.T) {
			s := newStage(t, kind)
			cfg := s.config()
			cfg.Log = zerolog.Logger{}
			data, err := json.Marshal(cfg)
			testkit.Must(t, err)
			host := exec.Command(programPath(t))
			host.Env = append(os.Environ(), hostEnv+"="+string(data))
			var words bytes.Buffer
			host.Stderr = &words
			out, err := host.StdoutPipe()
			if err == nil {
				err = host.Start()
			}
			testkit.Must(t, err)
			line, _ := bufio.NewReader(out).ReadString('\n')
			_ = host.Process.Kill()
			_ = host.Wait()
			if line != "ready\n" {
				t.Fatalf("got %q, want ready\n%s", line, words.String())
			}
			testkit.Within(t, limit, "the policy's end", s.next().gone)
		})
	}
}
