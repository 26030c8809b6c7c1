package examples

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	"holdfast/proxy/policy"
)

const annToken, wallboardToken, operatorToken = "a token of ann's", "a token of a wallboard's", "a token of an operator's"

// programs are the examples, one in each language.
var programs = []struct {
	name    string
	command func(*testing.T) string // returns the path of the program, which needs no arguments
}{
	{"go", goExample},
	{"python", pythonExample},
}

var built struct {
	once sync.Once
	path string
	err  error
}

func goExample(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		built.path = filepath.Join(work, "file")
		if runtime.GOOS == "windows" {
			built.path += ".exe"
		}
		cmd := exec.Command("go", "build", "-o", built.path, "./file")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as for the programs, so that the packages are compiled once
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// pythonExample skips the test if Python lacks a package, and fails it if HOLDFAST_REQUIRE_PYTHON=1.
func pythonExample(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("/usr/bin/python3", "-c", "import grpc, google.protobuf, cryptography").CombinedOutput()
	if err == nil {
		path, err := filepath.Abs(filepath.Join("python", "policy.py"))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	why := fmt.Sprintf("the system's Python lacks python3-grpcio, python3-protobuf or python3-cryptography: %v %s", err, out)
	if os.Getenv("HOLDFAST_REQUIRE_PYTHON") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// config writes the example's file with tokens that the tests know, and with other changes as text. It returns its
// path.
func config(t *testing.T, dir string, changes map[string]string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("file", "policy.example.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := string(text)
	for i, token := range []string{annToken, wallboardToken, operatorToken} {
		all = strings.Replace(all, fmt.Sprintf("%064d", i+1), fmt.Sprintf("%x", sha256.Sum256([]byte(token))), 1)
	}
	for from, to := range changes {
		if !strings.Contains(all, from) {
			t.Fatalf("the example's file lacks %s", from)
		}
		all = strings.ReplaceAll(all, from, to)
	}
	path := filepath.Join(dir, "policy.json")
	replace(t, path, all)
	return path
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// shortDir returns a directory for sockets, whose paths have at most 103 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// client starts a policy as a proxy does, without its own environment.
func client(command, dir, config string, log hclog.Logger) *plugin.Client {
	cmd := exec.Command(command)
	cmd.Env = []string{
		"HOLDFAST_POLICY_CONFIG=" + config, plugin.EnvUnixSocketDir + "=" + dir, "PYTHONDONTWRITEBYTECODE=1",
	}
	return plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: policy.Handshake, VersionedPlugins: policy.Plugins(nil), Cmd: cmd, SkipHostEnv: true,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC}, AutoMTLS: true, Logger: log,
	})
}

// start returns the policy of a program, which must end by itself at the test's end.
func start(t *testing.T, command, dir, config string) policy.Policy {
	t.Helper()
	log := &lines{}
	c := client(command, dir, config, hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: log}))
	t.Cleanup(func() {
		c.Kill()
		if strings.Contains(log.String(), "failed to exit gracefully") {
			t.Error("the program had to be killed")
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "p*", "s")); len(left) > 0 {
			t.Errorf("the program has left %q", left)
		}
		if t.Failed() {
			t.Logf("the log:\n%.20000s", log.String())
		}
	})
	p, err := dispense(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func dispense(c *plugin.Client) (policy.Policy, error) {
	conn, err := c.Client()
	if err != nil {
		return nil, err
	}
	if err := conn.Ping(); err != nil {
		return nil, fmt.Errorf("health of the program: %w", err)
	}
	raw, err := conn.Dispense(policy.PluginName)
	if err != nil {
		return nil, err
	}
	return raw.(policy.Policy), nil
}

// lines keeps the lines of a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
