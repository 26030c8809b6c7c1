package examples

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	"holdfast/proxy/policy"
)

var work string // the directory of the built programs

// TestMain also runs the proxy that TestOrphan kills.
func TestMain(m *testing.M) {
	if command := os.Getenv("HOLDFAST_TEST_HOST"); command != "" {
		os.Exit(host(command))
	}
	var err error
	if work, err = os.MkdirTemp("", "hpwork"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(work)
	os.Exit(code)
}

// host starts a policy that inherits descriptor 3, prints its pid, and waits until it is killed.
func host(command string) int {
	cmd := exec.Command(command)
	cmd.Env = os.Environ()
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "held")}
	c := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: policy.Handshake, VersionedPlugins: policy.Plugins(nil), Cmd: cmd, SkipHostEnv: true,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC}, AutoMTLS: true, Logger: hclog.NewNullLogger(),
	})
	if _, err := dispense(c); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(c.ID())
	select {}
}

// A policy ends when its proxy is killed, and leaves no socket.
func TestOrphan(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the end of the parent is not noticed on this system")
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			command, dir := p.command(t), shortDir(t)
			sockets := filepath.Join(dir, "sockets")
			if err := os.Mkdir(sockets, 0o700); err != nil {
				t.Fatal(err)
			}
			held, end, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			proxy := exec.Command(os.Args[0])
			proxy.Env = append(os.Environ(), "HOLDFAST_TEST_HOST="+command, "HOLDFAST_POLICY_CONFIG="+config(t, dir, nil),
				plugin.EnvUnixSocketDir+"="+sockets, "PYTHONDONTWRITEBYTECODE=1")
			proxy.ExtraFiles = []*os.File{end}
			out, err := proxy.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := proxy.Start(); err != nil {
				t.Fatal(err)
			}
			end.Close()
			said, err := bufio.NewReader(out).ReadString('\n')
			proxy.Process.Kill()
			proxy.Wait()
			pid, notPID := strconv.Atoi(strings.TrimSpace(said))
			if err != nil || notPID != nil {
				t.Fatalf("the proxy printed %q: %v", said, err)
			}
			// The pipe ends when the policy has ended, too.
			held.SetReadDeadline(time.Now().Add(time.Minute))
			if n, err := held.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				if left, err := os.FindProcess(pid); err == nil {
					left.Kill()
				}
				t.Fatalf("the policy still runs: %d %v", n, err)
			}
			if left, err := os.ReadDir(sockets); err != nil || len(left) > 0 {
				t.Errorf("the remaining files are %v %v", left, err)
			}
		})
	}
}
