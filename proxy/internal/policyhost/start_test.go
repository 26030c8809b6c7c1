//go:build unix

package policyhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

func TestStartFails(t *testing.T) {
	for _, tt := range []struct {
		name, role string
		harm       func(*testing.T, *Config)
		code       protocol.Code
		says       string
	}{
		{name: "no program", harm: func(_ *testing.T, c *Config) { c.Path = c.Dir + "/none" }, code: protocol.CodeNotFound, says: "there is no policy"},
		{name: "a directory", harm: func(_ *testing.T, c *Config) { c.Path = c.Dir }, code: protocol.CodePermissionDenied, says: "must be an executable file"},
		{name: "not executable", harm: func(_ *testing.T, c *Config) { c.Path = c.ConfigFile }, code: protocol.CodePermissionDenied, says: "must be an executable file"},
		{name: "no interpreter", harm: script("#!/nowhere/sh\n"), code: protocol.CodeNotFound, says: "interpreter"},
		{name: "no format", harm: script("\x00\x01"), code: protocol.CodePolicyUnavailable, says: "exec format error"},
		{name: "no directory", harm: func(_ *testing.T, c *Config) { c.Dir += "/none" }, code: protocol.CodePolicyUnavailable, says: "no such file"},
		{name: "a program that ends", role: "exits", code: protocol.CodePolicyUnavailable, says: "ended before the handshake (exit status 7)"},
		{name: "a program that prints", role: "prints", code: protocol.CodePolicyUnavailable, says: `but was "hello, world\n"`},
		{name: "a silent program", role: "silent", harm: hasty, code: protocol.CodePolicyUnavailable, says: "did not answer the handshake within 1s"},
		{name: "no time for the start", harm: func(_ *testing.T, c *Config) { c.StartTime = time.Nanosecond }, code: protocol.CodePolicyUnavailable, says: "did not answer the handshake within 1ns"},
		{name: "net/rpc", role: "netrpc", code: protocol.CodePolicyUnavailable, says: `unsupported plugin protocol "netrpc"`},
		{name: "no TLS", role: "plaintext", code: protocol.CodePolicyUnavailable, says: "must speak TLS"},
		{name: "no socket", role: "nowhere", code: protocol.CodePolicyUnavailable, says: "not on its socket"},
		{name: "mistakes", harm: func(_ *testing.T, c *Config) { c.Path, c.ConfigFile, c.Dir, c.SHA256 = "p", "c", "d", "s" }, code: protocol.CodeInvalidArgument,
			says: "policy: the program's path must be absolute, it is \"p\"\nthe policy's configuration must be an absolute path, it is \"c\"\n" +
				"the directory for the policy's socket must be absolute, it is \"d\"\nthe sum must be 64 hex digits, it is \"s\""},
		{name: "a long directory", harm: func(_ *testing.T, c *Config) { c.Dir += strings.Repeat("/d", 40) }, code: protocol.CodeInvalidArgument, says: "at most 65 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.role)
			cfg := s.config()
			if tt.harm != nil {
				tt.harm(t, &cfg)
			}
			h, err := Start(testkit.Soon(t), cfg)
			if h != nil || protocol.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %s with %q\n%s", err, tt.code, tt.says, s.log)
			}
			if left, _ := filepath.Glob(filepath.Join(s.dir, "plugin-dir*")); len(left) != 0 {
				t.Errorf("directories remain: %v", left)
			}
		})
	}
}

func hasty(_ *testing.T, c *Config) { c.StartTime = time.Second }

func script(text string) func(*testing.T, *Config) {
	return func(t *testing.T, c *Config) {
		c.Path = filepath.Join(c.Dir, "script")
		testkit.Must(t, os.WriteFile(c.Path, []byte(text), 0o700))
	}
}

func TestStartIsGivenUp(t *testing.T) {
	s := newStage(t, "silent")
	ctx, cancel := context.WithCancel(testkit.Soon(t))
	failed := make(chan error, 1)
	go func() {
		_, err := Start(ctx, s.config())
		failed <- err
	}()
	p := s.next()
	cancel()
	if err := testkit.Within(t, limit, "the answer", failed); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	testkit.Within(t, limit, "the end of the program", p.gone)
	if _, err := Start(ctx, s.config()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
