// Package config says where things lie and what can be tuned, the same for
// both processes and for the CLI.
//
// A setting is taken from its default, then holdfast.json in the config
// directory, then HOLDFAST_* in the environment, then a flag; the last one
// wins. All mistakes are reported at once, each with where it stands.
//
// Invariant: what Load returns is valid and complete; nobody behind it looks
// at a file, a flag or the environment for a setting.
//
// Not here: sockets (package shared/socket, which also judges directories) and
// what a setting means to the one who uses it.
package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/protocol"
)

// FileName is the config file's name in the config directory.
const FileName = "holdfast.json"

// RecommendedIdleTimeout is what an app that wants idle sessions ended should
// ask for. It is no default: nobody's shell ends because nothing was said.
const RecommendedIdleTimeout = 60 * time.Minute

// Bounds, beside those that the fields name.
const (
	minRing        = 64 << 10
	maxRing        = 64 << 20
	maxScrollback  = 1_000_000
	maxExitRecords = 100_000
	maxSpawnRate   = 10_000 // some times what a machine can
	maxSessions    = 65_536 // sixteen times the kernel's own default for PTYs
	maxGrace       = time.Minute
	maxEarlyExit   = time.Minute
	maxCrashes     = 1_000_000
	maxCrashPause  = time.Minute
	minStart       = time.Second
	maxStart       = 10 * time.Minute
	minSecret      = 16 // bytes; less is guessed
	maxSecret      = 4 << 10
)

// Config is what can be tuned. A zero field means its default.
type Config struct {
	RingBytes       int             // output kept for replay, per session; default 1 MiB, 64 KiB to 64 MiB
	ScrollbackLines int             // history of a screen, per session; default 10000
	ExitKeep        time.Duration   // how long an exit record is kept; default 10 min
	ExitRecords     int             // how many are kept; default 256
	MaxSessions     int             // sessions at a time; default 4096
	OriginatorMax   int             // of those, of one originator; 0 is half of them, or 1024
	SpawnRate       int             // sessions started a second by one originator, eight times as many at once; default 128
	Grace           time.Duration   // from the soft signal to SIGKILL; default 250 ms
	IdleTimeout     time.Duration   // a session without I/O ends after this; zero or negative: never
	EmptyTimeout    time.Duration   // a supervisor without session, exit record and proxy ends after this; default 5 min, zero or negative: never
	CrashLimit      int             // deaths of the supervisor in a minute after which it is not started again; default 5
	CrashPause      time.Duration   // before its second start in a minute, twice that before the third; default 100 ms
	StartTimeout    time.Duration   // a supervisor that gets no further for so long before it serves is ended; default 10 s, 1 s to 10 min
	EarlyExit       time.Duration   // a start fails if the child has ended by then; default 200 ms, negative: no check
	LogLevel        string          // trace, debug, info, warn or error; default info
	SecretFile      string          // file of mode 0600 with a secret that clients must know; default none
	Web             string          // loopback address on which the proxy serves WebSockets; default none
	Policy          string          // program that decides who may do what; "none" ends what was remembered; default none
	PolicyConfig    string          // file that is named to that program
	PolicySHA256    string          // of the program, in hex, where no other may be started
	WebOrigins      string          // origins whose pages may connect there, besides its own, with commas between
	NoAgentLink     bool            // sessions do not find the ssh agent of the viewer that came last
	Cage            string          // cgroup for the sessions' own cgroups: auto, own, off or a directory; default auto
	Limits          protocol.Limits // of a session that names none; default none
	// ShellIntegration has the shells of "proxy new" tell of their prompts and commands.
	ShellIntegration bool
	DetachKey        string // keys that detach "proxy attach", as its --detach-key; default its own
}

func (c Config) withDefaults() Config {
	c.RingBytes = cmp.Or(c.RingBytes, 1<<20)
	c.ScrollbackLines = cmp.Or(c.ScrollbackLines, 10_000)
	c.ExitKeep = cmp.Or(c.ExitKeep, 10*time.Minute)
	c.ExitRecords = cmp.Or(c.ExitRecords, 256)
	c.MaxSessions = cmp.Or(c.MaxSessions, 4096)
	c.SpawnRate = cmp.Or(c.SpawnRate, 128)
	c.Grace = cmp.Or(c.Grace, 250*time.Millisecond)
	c.EmptyTimeout = cmp.Or(c.EmptyTimeout, 5*time.Minute)
	c.CrashLimit = cmp.Or(c.CrashLimit, 5)
	c.CrashPause = cmp.Or(c.CrashPause, 100*time.Millisecond)
	c.StartTimeout = cmp.Or(c.StartTimeout, 10*time.Second)
	c.EarlyExit = cmp.Or(c.EarlyExit, 200*time.Millisecond)
	c.LogLevel = cmp.Or(c.LogLevel, "info")
	c.Cage = cmp.Or(c.Cage, "auto")
	return c // and IdleTimeout as it is: its zero has a meaning
}

// validate reports every mistake of a config with its defaults in place.
func (c Config) validate() error {
	var errs []error
	check := func(ok bool, setting, rule string, got any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s must be %s, it is %v", setting, rule, got))
		}
	}
	check(minRing <= c.RingBytes && c.RingBytes <= maxRing, "ring_bytes", "64 KiB to 64 MiB (65536 to 67108864)", c.RingBytes)
	check(0 < c.ScrollbackLines && c.ScrollbackLines <= maxScrollback, "scrollback_lines", "1 to 1000000", c.ScrollbackLines)
	check(c.ExitKeep > 0, "exit_keep", "more than nothing", c.ExitKeep)
	check(0 < c.ExitRecords && c.ExitRecords <= maxExitRecords, "exit_records", "1 to 100000", c.ExitRecords)
	check(0 < c.MaxSessions && c.MaxSessions <= maxSessions, "max_sessions", "1 to 65536", c.MaxSessions)
	check(0 <= c.OriginatorMax && c.OriginatorMax <= maxSessions, "originator_sessions", "0 to 65536", c.OriginatorMax)
	check(0 < c.SpawnRate && c.SpawnRate <= maxSpawnRate, "spawn_rate", "1 to 10000", c.SpawnRate)
	check(0 < c.Grace && c.Grace <= maxGrace, "grace", "more than nothing and at most 1m", c.Grace)
	check(0 < c.CrashLimit && c.CrashLimit <= maxCrashes, "crash_limit", "1 to 1000000", c.CrashLimit)
	check(0 < c.CrashPause && c.CrashPause <= maxCrashPause, "crash_pause", "more than nothing and at most 1m", c.CrashPause)
	check(minStart <= c.StartTimeout && c.StartTimeout <= maxStart, "start_timeout", "1s to 10m", c.StartTimeout)
	check(c.EarlyExit <= maxEarlyExit, "early_exit", "at most 1m", c.EarlyExit)
	check(slices.Contains(levels, c.LogLevel), "log_level", "one of "+strings.Join(levels, ", "), strconv.Quote(c.LogLevel))
	check(c.SecretFile == "" || filepath.IsAbs(c.SecretFile), "secret_file", "an absolute path", strconv.Quote(c.SecretFile))
	check(c.Cage == "auto" || c.Cage == "own" || c.Cage == "off" || filepath.IsAbs(c.Cage), "cage", "auto, own, off or an absolute path", strconv.Quote(c.Cage))
	check(c.PolicySHA256 == "" || isSHA256(c.PolicySHA256), "policy_sha256", "64 hexadecimal digits", strconv.Quote(c.PolicySHA256))
	return errors.Join(errs...)
}

func isSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

var levels = []string{"trace", "debug", "info", "warn", "error"}

// A setting is a field of Config with its name in the file. In the environment
// the name is HOLDFAST_ and upper case, as a flag it has hyphens.
type setting struct {
	name, usage string
	set         func(c *Config, value string) error
}

func (s setting) env() string  { return "HOLDFAST_" + strings.ToUpper(s.name) }
func (s setting) flag() string { return strings.ReplaceAll(s.name, "_", "-") }

var settings = []setting{
	{"ring_bytes", "output `bytes` kept for replay, per session (1048576)", number(func(c *Config) *int { return &c.RingBytes })},
	{"scrollback_lines", "history `lines` of a screen, per session (10000)", number(func(c *Config) *int { return &c.ScrollbackLines })},
	{"exit_keep", "`time` that an exit record is kept (10m)", duration(func(c *Config) *time.Duration { return &c.ExitKeep })},
	{"exit_records", "`number` of exit records kept (256)", number(func(c *Config) *int { return &c.ExitRecords })},
	{"max_sessions", "`number` of sessions at a time (4096)", number(func(c *Config) *int { return &c.MaxSessions })},
	{"originator_sessions", "`number` of sessions of one originator at a time; 0: half of max_sessions, or 1024 (0)", number(func(c *Config) *int { return &c.OriginatorMax })},
	{"spawn_rate", "`number` of sessions that one originator starts a second; at once, eight times as many (128)", number(func(c *Config) *int { return &c.SpawnRate })},
	{"grace", "`time` from the soft signal to SIGKILL (250ms)", duration(func(c *Config) *time.Duration { return &c.Grace })},
	{"idle_timeout", "`time` without I/O after which a session ends; 0 or negative: never (0)", duration(func(c *Config) *time.Duration { return &c.IdleTimeout })},
	{"empty_timeout", "`time` after which a supervisor without session, exit record and proxy ends; 0 or negative: never (5m)", duration(func(c *Config) *time.Duration { return &c.EmptyTimeout })},
	{"early_exit", "`time` within which the end of a child fails its start; 0: no check (200ms)", setEarlyExit},
	{"crash_limit", "`number` of the supervisor's deaths in a minute after which it is not started again, and all is held (5)", number(func(c *Config) *int { return &c.CrashLimit })},
	{"crash_pause", "`time` before its second start in a minute; twice that before the third (100ms)", duration(func(c *Config) *time.Duration { return &c.CrashPause })},
	{"start_timeout", "`time` without progress before it serves after which a supervisor is ended, and another started; doubled for each in a row (10s)", duration(func(c *Config) *time.Duration { return &c.StartTimeout })},
	{"log_level", "`level`: trace, debug, info, warn or error (info)", text(func(c *Config) *string { return &c.LogLevel })},
	{"secret_file", "`file` of mode 0600 with a secret that clients must know", text(func(c *Config) *string { return &c.SecretFile })},
	{"policy", "`program` that decides who may do what; it is remembered until \"none\" is said", text(func(c *Config) *string { return &c.Policy })},
	{"policy_config", "`file` that is named to that program", text(func(c *Config) *string { return &c.PolicyConfig })},
	{"policy_sha256", "`sum` of that program, in hex: no other is started", text(func(c *Config) *string { return &c.PolicySHA256 })},
	{"agent_link", "`true` or false: sessions find the ssh agent of the viewer that came last (true)", not(func(c *Config) *bool { return &c.NoAgentLink })},
	{"web", "loopback `address` on which the proxy serves WebSockets; 127.0.0.1:0 for any port", text(func(c *Config) *string { return &c.Web })},
	{"web_origins", "`origins` whose pages may connect there, too, with commas between", text(func(c *Config) *string { return &c.WebOrigins })},
	{"cage", "`cgroup` in which each session gets one of its own (Linux): auto, own, off or a directory of cgroup version 2 (auto)", text(func(c *Config) *string { return &c.Cage })},
	{"memory_max", "`size`, such as 512M, of all memory of a session; beyond it the kernel kills a program of it (none)", limit(protocol.LabelMemoryMax)},
	{"memory_high", "`size` of a session's memory beyond which it is slowed down (none)", limit(protocol.LabelMemoryHigh)},
	{"pids_max", "`number` of processes and threads of a session (none)", limit(protocol.LabelPIDsMax)},
	{"cpu_max", "`processors`, such as 1.5 or 150%, that a session may use (none)", limit(protocol.LabelCPUMax)},
	{"cpu_weight", "`share` of a session against others when processors are scarce, 1 to 10000 (100)", limit(protocol.LabelCPUWeight)},
	{"shell_integration", "`true` or false: shells that \"proxy new\" starts tell of their prompts and commands (false)", truth(func(c *Config) *bool { return &c.ShellIntegration })},
	{"detach_key", "`keys` that detach \"proxy attach\", one or two, or none (ctrl-\\ d)", text(func(c *Config) *string { return &c.DetachKey })},
}

func number(field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("%q is no whole number", v)
		}
		*field(c) = n
		return nil
	}
}

func duration(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil {
			return fmt.Errorf("%q is no duration such as \"90s\" or \"10m\"", v)
		}
		*field(c) = d
		return nil
	}
}

func truth(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v != "true" && v != "false" {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		*field(c) = v == "true"
		return nil
	}
}

// not is truth for a field that says the opposite.
func not(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error {
		if err := truth(field)(c, v); err != nil {
			return err
		}
		*field(c) = !*field(c)
		return nil
	}
}

func limit(name string) func(*Config, string) error {
	return func(c *Config, v string) error {
		f, _ := protocol.LimitFieldOf(name)
		if err := f.Parse(&c.Limits, v); err != nil {
			return errors.New(protocol.AsError(err).Message)
		}
		return nil
	}
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error { *field(c) = v; return nil }
}

// setEarlyExit takes a written 0 for "no check", which in Config is negative:
// there, 0 is a field nobody has set.
func setEarlyExit(c *Config, v string) error {
	err := duration(func(c *Config) *time.Duration { return &c.EarlyExit })(c, v)
	if err == nil && c.EarlyExit == 0 {
		c.EarlyExit = -1
	}
	return err
}

// Flags defines a flag for every setting and returns what Load wants of them,
// which is filled when fs is parsed.
func Flags(fs *flag.FlagSet) map[string]string {
	given := map[string]string{}
	for _, s := range settings {
		fs.Func(s.flag(), s.usage, func(v string) error {
			given[s.name] = v
			return s.set(new(Config), v) // so that the flag's own parser names the mistake
		})
	}
	return given
}

// Args are the flags that say again what Flags was told.
func Args(given map[string]string) (args []string) {
	for _, s := range settings {
		if v, ok := given[s.name]; ok {
			args = append(args, "--"+s.flag()+"="+v)
		}
	}
	return args
}

// ErrInvalid is matched by the error of settings that cannot be used.
var ErrInvalid = errors.New("configuration")

// Load reads the settings: the file in dirs.Config, if there is one, then env
// (os.Getenv), then the flags of Flags, if any.
func Load(dirs Dirs, env func(string) string, flags map[string]string) (Config, error) {
	c := Config{}.withDefaults() // first, so that a written 0 is not taken for nothing
	path := filepath.Join(dirs.Config, FileName)
	file, err := readFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("%w: read %s: %w", ErrInvalid, path, err)
	}
	var errs []error
	set := func(s setting, where, value string) {
		if err := s.set(&c, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
	}
	for _, s := range settings {
		if v, ok := file[s.name]; ok {
			set(s, path+": "+s.name, v)
			delete(file, s.name)
		}
		if v := env(s.env()); v != "" {
			set(s, s.env(), v)
		}
		if v, ok := flags[s.name]; ok {
			set(s, "--"+s.flag(), v)
		}
	}
	for _, name := range sorted(file) {
		errs = append(errs, fmt.Errorf("%s: there is no setting %q", path, name))
	}
	if err := errors.Join(append(errs, c.validate())...); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return c, nil
}

// readFile returns the file's values as text, so that file, environment and
// flags share one parser. No file is no value.
func readFile(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	values := make(map[string]string, len(object))
	for name, v := range object {
		switch v := v.(type) {
		case string:
			values[name] = v
		case json.Number:
			values[name] = v.String()
		case bool:
			values[name] = strconv.FormatBool(v)
		default:
			return nil, fmt.Errorf("%s must be a number or a string, or true or false", name)
		}
	}
	return values, nil
}

func sorted(m map[string]string) []string {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Secret returns what is in the secret file, without the white space around
// it; "" if none is set. It refuses a file that others can read or write.
func (c Config) Secret() (string, error) {
	if c.SecretFile == "" {
		return "", nil
	}
	secret, err := readSecret(c.SecretFile)
	if err != nil {
		return "", fmt.Errorf("secret file %s: %w", c.SecretFile, err)
	}
	return secret, nil
}

func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	fi, err := f.Stat() // of what was opened, not of what has the name by now
	if err != nil {
		return "", err
	}
	if err := checkSecretFile(fi); err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(data))
	if len(data) > maxSecret || len(secret) < minSecret {
		return "", fmt.Errorf("the secret must have %d to %d bytes", minSecret, maxSecret)
	}
	return secret, nil
}
