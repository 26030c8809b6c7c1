package config

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// getenv returns a function that looks up variables in a map.
func getenv(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

// load loads the configuration from a file, unless file is "", from the environment and from the command
// line.
func load(t *testing.T, file string, env map[string]string, args ...string) (Config, error) {
	t.Helper()
	dir := t.TempDir()
	if file != "" {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, FileName), []byte(file), 0o600))
	}
	set := flag.NewFlagSet("test", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	flags := Flags(set)
	if err := set.Parse(args); err != nil {
		return Config{}, err
	}
	return Load(Dirs{Config: dir}, getenv(env), flags)
}

func TestLoadOrder(t *testing.T) {
	defaults := Config{
		RingBytes: 1 << 20, ScrollbackLines: 10000, ExitKeep: 10 * time.Minute, ExitRecords: 256, MaxSessions: 4096, SpawnRate: 128,
		Grace: 250 * time.Millisecond, EmptyTimeout: 5 * time.Minute, CrashLimit: 5, CrashPause: 100 * time.Millisecond, StartTimeout: 10 * time.Second, EarlyExit: 200 * time.Millisecond, LogLevel: "info", Cage: "auto",
		Durable: protocol.DurableScreen, DurableSync: time.Second, DurableSession: 256 << 20, DurableTotal: 2 << 30, DurableAge: 720 * time.Hour, SSHCommand: DefaultSSHCommand(), Revive: ReviveAsk,
		RecordingsEndpoint: "https://s3.amazonaws.com", RecordingsSessions: "labelled", RecordingsAge: 720 * time.Hour, RecordingsBytes: 10 << 30,
	}
	sum := strings.Repeat("0f", 32)
	with := func(change func(*Config)) Config {
		c := defaults
		change(&c)
		return c
	}
	for _, tt := range []struct {
		name string
		file string
		env  map[string]string
		args []string
		want Config
	}{
		{name: "nothing", want: defaults},
		{name: "an empty object", file: "{}", want: defaults},
		{name: "file", file: `{"ring_bytes": 65536, "grace": "1s"}`,
			want: with(func(c *Config) { c.RingBytes, c.Grace = 65536, time.Second })},
		{name: "environment over file", file: `{"ring_bytes": 65536, "log_level": "warn"}`,
			env:  map[string]string{"HOLDFAST_RING_BYTES": "131072", "HOLDFAST_SESSION": "s1"},
			want: with(func(c *Config) { c.RingBytes, c.LogLevel = 131072, "warn" })},
		{name: "flag over both", file: `{"exit_keep": "1m"}`,
			env: map[string]string{"HOLDFAST_EXIT_KEEP": "2m"}, args: []string{"--exit-keep=3m"},
			want: with(func(c *Config) { c.ExitKeep = 3 * time.Minute })},
		{name: "a flag can set zero", file: `{"idle_timeout": "5m"}`, args: []string{"--idle-timeout", "0"},
			want: defaults},
		{name: "no check for an early exit", file: `{"early_exit": "0"}`,
			want: with(func(c *Config) { c.EarlyExit = -1 })},
		{name: "everything", file: `{"ring_bytes":67108864,"scrollback_lines":1,"exit_keep":"1h","exit_records":1,"max_sessions":1,"originator_sessions":2,"spawn_rate":3,
			"grace":"1m","idle_timeout":"60m","empty_timeout":"4m","crash_limit":7,"crash_pause":"2s","start_timeout":"3s","early_exit":"1m","log_level":"trace","secret_file":"/s",
			"web":"127.0.0.1:80","web_origins":"https://a, https://b","policy":"/p","policy_config":"/c","policy_sha256":"` + sum + `","agent_link":false,"cage":"/sys/fs/cgroup/x","memory_max":"512M","cpu_max":1.5,"durable":"full","durable_sync":"2s","durable_session_bytes":1048576,"durable_total_bytes":2097152,"durable_age":"24h","durable_key":"/k","shell_integration":true,"secret_env":"A, *_TOKEN","revive":"argv","resume_argv":"a=a --continue {x}; claude=","ssh_command":"ssh -F /f","gate":"g","upgrade_from":"/opt/a, /opt/b/","recordings":"s3://bucket/r","recordings_endpoint":"http://[::1]:9000","recordings_sessions":"all","recordings_age":"2h","recordings_bytes":0,"detach_key":"ctrl-a d"}`,
			want: Config{64 << 20, 1, time.Hour, 1, 1, 2, 3, time.Minute, time.Hour, 4 * time.Minute, 7, 2 * time.Second, 3 * time.Second, time.Minute, "trace", "/s", "127.0.0.1:80", "/p", "/c", sum, "https://a, https://b", true, "/sys/fs/cgroup/x", protocol.Limits{MemoryMax: new(uint64(512 << 20)), CPUMax: new(uint64(1500))}, true, protocol.DurableFull, 2 * time.Second, 1 << 20, 2 << 20, 24 * time.Hour, "/k", []string{"A", "*_TOKEN"}, nil, []string{"ssh", "-F", "/f"}, ReviveArgv, map[string]ResumeTemplate{"a": {"a", "--continue", "{x}"}, "claude": {}}, "g", []string{"/opt/a", "/opt/b"}, "ctrl-a d", "s3://bucket/r", "http://[::1]:9000", "all", 2 * time.Hour, 0}},
		{name: "a flag says no", file: `{"shell_integration": true}`, args: []string{"--shell-integration=false"}, want: defaults},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := load(t, tt.file, tt.env, tt.args...); err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v (%v)\nwant %+v", got, err, tt.want)
			}
		})
	}
}

// demand: M1
func TestIdleTimeoutIsNeverRewritten(t *testing.T) {
	for _, v := range []string{"0", "0s", "-1ns", "-5m", "1ns", "60m", "87600h"} {
		want, err := time.ParseDuration(v)
		testkit.Must(t, err)
		for how, load := range map[string]func() (Config, error){
			"file": func() (Config, error) { return load(t, `{"idle_timeout": "`+v+`"}`, nil) },
			"env":  func() (Config, error) { return load(t, "", map[string]string{"HOLDFAST_IDLE_TIMEOUT": v}) },
			"flag": func() (Config, error) { return load(t, "", nil, "--idle-timeout="+v) },
		} {
			if c, err := load(); err != nil || c.IdleTimeout != want {
				t.Errorf("%s %s: got %v, %v", how, v, c.IdleTimeout, err)
			}
		}
		if c := (Config{IdleTimeout: want}).withDefaults(); c.IdleTimeout != want {
			t.Errorf("withDefaults changed the idle timeout to %v, want %v", c.IdleTimeout, want)
		}
	}
	if c, err := load(t, "", nil); err != nil || c.IdleTimeout != 0 {
		t.Errorf("without a setting: idle timeout %v, %v; want 0", c.IdleTimeout, err)
	}
}

// Load must report all mistakes at once, each with its place.
func TestLoadMistakes(t *testing.T) {
	for _, tt := range []struct {
		name string
		file string
		env  map[string]string
		args []string
		says []string
	}{
		{name: "several", file: `{"ring_bytes": 1, "grace": "soon", "colour": "red", "sessions": 3}`,
			env:  map[string]string{"HOLDFAST_LOG_LEVEL": "loud", "HOLDFAST_EXIT_RECORDS": "many"},
			says: []string{"ring_bytes must be 64 KiB", FileName + `: grace: "soon"`, `no setting "colour"`, `no setting "sessions"`, `log_level must be`, `HOLDFAST_EXIT_RECORDS: "many"`}},
		{name: "bounds", file: `{"ring_bytes":67108865,"scrollback_lines":-1,"exit_keep":"-1s","exit_records":100001,"max_sessions":65537,"originator_sessions":-1,"spawn_rate":10001,"grace":"61s","early_exit":"61s","secret_file":"s","agent_link":"yes"}`,
			says: []string{"ring_bytes", "scrollback_lines", "exit_keep", "exit_records", "max_sessions", "originator_sessions", "spawn_rate", "grace", "early_exit", "secret_file", "agent_link"}},
		{name: "a written zero", file: `{"grace":"0","max_sessions":0,"ring_bytes":0}`, says: []string{"grace", "max_sessions", "ring_bytes"}},
		{name: "a duration without its unit", file: `{"grace": 10}`, says: []string{`"10" is not a duration`}},
		{name: "a fraction", file: `{"ring_bytes": 1e6}`, says: []string{`"1e6" is not a whole number`}},
		{name: "neither true nor false", file: `{"shell_integration": 1, "grace": true}`, says: []string{`"1" is neither true nor false`, `"true" is not a duration`}},
		{name: "another type", file: `{"ring_bytes": [1]}`, says: []string{"ring_bytes must be a number or a string"}},
		{name: "no JSON", file: `{"ring_bytes": `, says: []string{FileName, "unexpected EOF"}},
		{name: "more than an object", file: `{} {}`, says: []string{"something follows the JSON object"}},
		{name: "a directory that is not absolute, and the root", file: `{"upgrade_from": "opt, http://example.org"}`, env: map[string]string{"HOLDFAST_UPGRADE_FROM": "https://example.org/dl, /opt,/"}, says: []string{`"opt" is not the absolute path`, `"/" is not the absolute path`}},
		{name: "a bad flag", args: []string{"--grace=soon"}, says: []string{"grace", "not a duration"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.file, tt.env, tt.args...)
			if err == nil {
				t.Fatal("Load succeeded")
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the error lacks %q:\n%v", s, err)
				}
			}
		})
	}
}

func TestSecret(t *testing.T) {
	const good = "0123456789abcdef"
	for _, tt := range []struct {
		name, content string
		mode          os.FileMode
		want, says    string
	}{
		{"as it should be", "  " + good + "\n", 0o600, good, ""},
		{"read-only", good, 0o400, good, ""},
		{"open to the group", good, 0o640, "", "mode 0600"},
		{"open to others", good, 0o604, "", "mode 0600"},
		{"empty", "\n", 0o600, "", "16 to 4096 bytes"},
		{"too long", strings.Repeat("x", 5000), 0o600, "", "16 to 4096 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			testkit.Must(t, os.WriteFile(path, []byte(tt.content), 0o600))
			testkit.Must(t, os.Chmod(path, tt.mode))
			got, err := Config{SecretFile: path}.Secret()
			if got != tt.want || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	if got, err := (Config{}).Secret(); got != "" || err != nil {
		t.Errorf("Secret without a file: %q, %v", got, err)
	}
	if _, err := (Config{SecretFile: t.TempDir()}).Secret(); !errors.Is(err, ErrInvalid) { // commands end with 78
		t.Errorf("Secret of a directory: %v, want an invalid setting", err)
	}
}
