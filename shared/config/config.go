// Package config tells the supervisor, the proxies and the CLI their directories, socket
// names and settings.
//
// A setting has a default. The file holdfast.json in the config directory overrides the
// default, a variable HOLDFAST_* of the environment overrides the file, and a flag
// overrides the variable. Load reports all mistakes at once and names the place of each.
//
// Invariant: a Config that Load returns is valid and complete. Other packages must not
// read a file, a flag or the environment for a setting.
//
// Not here: sockets and the check of a directory's rights (package shared/socket), and
// the effect of each setting (the packages that use it).
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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/shared/mask"
)

// FileName is the name of the config file in the config directory.
const FileName = "holdfast.json"

// Limits of settings.
const (
	minRing        = 64 << 10
	maxRing        = 64 << 20
	maxScrollback  = 1_000_000
	maxExitRecords = 100_000
	maxSpawnRate   = 10_000 // several times the number that a machine can start
	maxSessions    = 65_536 // sixteen times the default limit of PTYs in Linux
	maxGrace       = time.Minute
	maxEarlyExit   = time.Minute
	maxCrashes     = 1_000_000
	maxCrashPause  = time.Minute
	minStart       = time.Second
	maxStart       = 10 * time.Minute
	minDurable     = 1 << 20
	minDurableSync = 100 * time.Millisecond
	maxDurableSync = time.Minute
	minSecret      = 16 // bytes; a shorter secret could be guessed
	maxSecret      = 4 << 10
)

// Config holds the settings. A zero field stands for the default.
type Config struct {
	RingBytes       int             // bytes of output kept for replay, per session; default 1 MiB, 64 KiB to 64 MiB
	ScrollbackLines int             // lines of history of a screen, per session; default 10000
	ExitKeep        time.Duration   // how long an exit record is kept; default 10 min
	ExitRecords     int             // how many exit records are kept; default 256
	MaxSessions     int             // sessions that may exist at a time; default 4096
	OriginatorMax   int             // sessions that one originator may have at a time; 0: half of MaxSessions, or 1024 if that is more
	SpawnRate       int             // sessions that one originator may start per second, and eight times as many in a burst; default 128
	Grace           time.Duration   // time from the soft signal to SIGKILL; default 250 ms
	IdleTimeout     time.Duration   // a session without I/O ends after this time; zero or negative: never
	EmptyTimeout    time.Duration   // a supervisor without session, exit record and proxy ends after this time; default 5 min; negative, or zero after Load: never
	CrashLimit      int             // after this many deaths in a minute only one supervisor is started each minute; default 5
	CrashPause      time.Duration   // pause before the second start of a supervisor in a minute, doubled for the third; default 100 ms
	StartTimeout    time.Duration   // a supervisor is ended if it makes no progress for this time before it serves; default 10 s, 1 s to 10 min
	EarlyExit       time.Duration   // a start fails if the child ends within this time; default 200 ms; negative: no check
	LogLevel        string          // trace, debug, info, warn or error; default info
	SecretFile      string          // path of a file of mode 0600 with a secret that clients must send; default none
	Web             string          // loopback address on which the proxy serves WebSockets; default none
	Policy          string          // path of the policy program; "none": forget the program of the last start; default none
	PolicyConfig    string          // path of a file; the policy program receives the path
	PolicySHA256    string          // SHA-256 that the policy program must have, in hex; empty: any
	WebOrigins      string          // further origins of pages that may connect to Web, separated by commas
	NoAgentLink     bool            // do not link sessions to the ssh agent of the viewer that attached last
	Cage            string          // cgroup above the cgroups of the sessions: auto, own, off or a directory; default auto
	Limits          protocol.Limits // limits of a session that is started without its own; default none
	// ShellIntegration makes the shells of "proxy new" report their prompts and commands.
	ShellIntegration bool
	Durable          protocol.Durable          // how much of a session is stored on disk: off, screen or full; default screen
	DurableSync      time.Duration             // output is stored after this time at the latest; default 1 s, 100 ms to 1 min
	DurableSession   int                       // bytes stored of one session; default 256 MiB
	DurableTotal     int                       // bytes stored of all sessions; default 2 GiB
	DurableAge       time.Duration             // how long output is stored; default 30 days
	DurableKey       string                    // file with the age identity that encrypts what is stored, or "!" and a command that prints it; default none
	SecretEnv        []string                  // names of variables, which may contain *, whose values are masked; default none
	Mask             []*regexp.Regexp          // patterns of secrets; default none
	SSHCommand       []string                  // ssh and its options; default DefaultSSHCommand
	Revive           Revive                    // how a lost session is started again; default ask
	ResumeTemplates  map[string]ResumeTemplate // by the name of a program; they replace the built-in ones of these programs
	Gate             string                    // text that "proxy gate client-token" prints; default none
	UpgradeFrom      []string                  // absolute directories and URLs; clients of a gate may upgrade this host to programs in and below them; default none
	DetachKey        string                    // keys that detach "proxy attach", as the flag --detach-key; empty: the default of that flag

	Recordings         string        // absolute path of a directory in which sessions are recorded, or s3://BUCKET/PREFIX; default none
	RecordingsEndpoint string        // address of the server of that bucket; default that of Amazon S3
	RecordingsSessions string        // sessions that are recorded unless the label record says it: labelled (none) or all; default labelled
	RecordingsAge      time.Duration // how long recordings are kept; default 30 days
	RecordingsBytes    int           // bytes of recordings of this host that are kept; 0: no limit; default 10 GiB
}

// Defaults returns the settings that hold if the user has set none.
func Defaults() Config { return Config{}.withDefaults() }

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
	c.Durable = cmp.Or(c.Durable, protocol.DurableScreen)
	c.DurableSync = cmp.Or(c.DurableSync, time.Second)
	c.DurableSession = cmp.Or(c.DurableSession, 256<<20)
	c.DurableTotal = cmp.Or(c.DurableTotal, 2<<30)
	c.DurableAge = cmp.Or(c.DurableAge, 30*24*time.Hour)
	c.Revive = cmp.Or(c.Revive, ReviveAsk)
	c.RecordingsEndpoint = cmp.Or(c.RecordingsEndpoint, defaultEndpoint)
	c.RecordingsSessions = cmp.Or(c.RecordingsSessions, "labelled")
	c.RecordingsAge = cmp.Or(c.RecordingsAge, 30*24*time.Hour)
	c.RecordingsBytes = cmp.Or(c.RecordingsBytes, 10<<30)
	if len(c.SSHCommand) == 0 {
		c.SSHCommand = DefaultSSHCommand()
	}
	return c // IdleTimeout has no default, because zero means never
}

// validate returns an error for each invalid setting of c. The defaults must have been
// filled in.
func (c Config) validate() error {
	var errs []error
	check := func(ok bool, setting, rule string, got any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s must be %s, but it is %v", setting, rule, got))
		}
	}
	check(minRing <= c.RingBytes && c.RingBytes <= maxRing, "ring_bytes", "64 KiB to 64 MiB (65536 to 67108864)", c.RingBytes)
	check(0 < c.ScrollbackLines && c.ScrollbackLines <= maxScrollback, "scrollback_lines", "1 to 1000000", c.ScrollbackLines)
	check(c.ExitKeep > 0, "exit_keep", "more than 0", c.ExitKeep)
	check(0 < c.ExitRecords && c.ExitRecords <= maxExitRecords, "exit_records", "1 to 100000", c.ExitRecords)
	check(0 < c.MaxSessions && c.MaxSessions <= maxSessions, "max_sessions", "1 to 65536", c.MaxSessions)
	check(0 <= c.OriginatorMax && c.OriginatorMax <= maxSessions, "originator_sessions", "0 to 65536", c.OriginatorMax)
	check(0 < c.SpawnRate && c.SpawnRate <= maxSpawnRate, "spawn_rate", "1 to 10000", c.SpawnRate)
	check(0 < c.Grace && c.Grace <= maxGrace, "grace", "more than 0 and at most 1m", c.Grace)
	check(0 < c.CrashLimit && c.CrashLimit <= maxCrashes, "crash_limit", "1 to 1000000", c.CrashLimit)
	check(0 < c.CrashPause && c.CrashPause <= maxCrashPause, "crash_pause", "more than 0 and at most 1m", c.CrashPause)
	check(minStart <= c.StartTimeout && c.StartTimeout <= maxStart, "start_timeout", "1s to 10m", c.StartTimeout)
	check(c.EarlyExit <= maxEarlyExit, "early_exit", "at most 1m", c.EarlyExit)
	check(slices.Contains(levels, c.LogLevel), "log_level", "one of "+strings.Join(levels, ", "), strconv.Quote(c.LogLevel))
	check(c.SecretFile == "" || filepath.IsAbs(c.SecretFile), "secret_file", "an absolute path", strconv.Quote(c.SecretFile))
	check(c.Cage == "auto" || c.Cage == "own" || c.Cage == "off" || filepath.IsAbs(c.Cage), "cage", "auto, own, off or an absolute path", strconv.Quote(c.Cage))
	check(c.Durable.Validate() == nil, "durable", "off, screen or full", strconv.Quote(string(c.Durable)))
	check(minDurableSync <= c.DurableSync && c.DurableSync <= maxDurableSync, "durable_sync", "100ms to 1m", c.DurableSync)
	check(c.DurableSession >= minDurable, "durable_session_bytes", "at least 1 MiB (1048576)", c.DurableSession)
	check(c.DurableTotal >= minDurable, "durable_total_bytes", "at least 1 MiB (1048576)", c.DurableTotal)
	check(c.DurableAge > 0, "durable_age", "more than 0", c.DurableAge)
	check(c.DurableKey == "" || filepath.IsAbs(c.DurableKey) || len(c.DurableKey) > 1 && c.DurableKey[0] == '!', "durable_key", "an absolute path, or ! and a command", strconv.Quote(c.DurableKey))
	check(c.Revive.IsValid(), "revive", "ask, shell or argv", strconv.Quote(string(c.Revive)))
	_, _, isBucket := parseBucket(c.Recordings)
	check(c.Recordings == "" || filepath.IsAbs(c.Recordings) || isBucket, "recordings", "an absolute path, or s3:// and the name of a bucket, and perhaps a slash and a prefix", strconv.Quote(c.Recordings))
	if parseEndpoint(c.RecordingsEndpoint) == nil { // the value is not repeated, because it may have a password
		errs = append(errs, errors.New("recordings_endpoint must be https://HOST or https://HOST:PORT; http is possible to a loopback address only"))
	}
	check(c.RecordingsSessions == "labelled" || c.RecordingsSessions == "all", "recordings_sessions", "labelled or all", strconv.Quote(c.RecordingsSessions))
	check(c.RecordingsAge > 0, "recordings_age", "more than 0", c.RecordingsAge)
	check(c.RecordingsBytes >= 0, "recordings_bytes", "0 or more", c.RecordingsBytes)
	check(c.PolicySHA256 == "" || isSHA256(c.PolicySHA256), "policy_sha256", "64 hexadecimal digits", strconv.Quote(c.PolicySHA256))
	return errors.Join(errs...)
}

func isSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

var levels = []string{"trace", "debug", "info", "warn", "error"}

// A setting is a field of Config and its name in the config file. The variable of the
// environment has the prefix HOLDFAST_ and upper case, and the flag has hyphens.
type setting struct {
	name, usage string
	set         func(c *Config, value string) error
}

func (s setting) env() string  { return "HOLDFAST_" + strings.ToUpper(s.name) }
func (s setting) flag() string { return strings.ReplaceAll(s.name, "_", "-") }

var settings = []setting{
	{"ring_bytes", "output `bytes` kept for replay, per session (1048576)", setNumber(func(c *Config) *int { return &c.RingBytes })},
	{"scrollback_lines", "history `lines` of a screen, per session (10000)", setNumber(func(c *Config) *int { return &c.ScrollbackLines })},
	{"exit_keep", "`time` that an exit record is kept (10m)", setDuration(func(c *Config) *time.Duration { return &c.ExitKeep })},
	{"exit_records", "`number` of exit records kept (256)", setNumber(func(c *Config) *int { return &c.ExitRecords })},
	{"max_sessions", "`number` of sessions at a time (4096)", setNumber(func(c *Config) *int { return &c.MaxSessions })},
	{"originator_sessions", "`number` of sessions of one originator at a time; 0: half of max_sessions, or 1024 (0)", setNumber(func(c *Config) *int { return &c.OriginatorMax })},
	{"spawn_rate", "`number` of sessions that one originator may start per second; eight times as many in a burst (128)", setNumber(func(c *Config) *int { return &c.SpawnRate })},
	{"grace", "`time` from the soft signal to SIGKILL (250ms)", setDuration(func(c *Config) *time.Duration { return &c.Grace })},
	{"idle_timeout", "`time` without I/O after which a session ends; 0 or negative: never (0)", setDuration(func(c *Config) *time.Duration { return &c.IdleTimeout })},
	{"empty_timeout", "`time` after which a supervisor without session, exit record and proxy ends; 0 or negative: never (5m)", setDuration(func(c *Config) *time.Duration { return &c.EmptyTimeout })},
	{"early_exit", "`time`; a start fails if the child ends within it; 0: no check (200ms)", setEarlyExit},
	{"crash_limit", "`number` of deaths of the supervisor in a minute after which only one is started each minute, and the keeper holds the sessions (5)", setNumber(func(c *Config) *int { return &c.CrashLimit })},
	{"crash_pause", "`time` before the second start of a supervisor in a minute; doubled before the third (100ms)", setDuration(func(c *Config) *time.Duration { return &c.CrashPause })},
	{"start_timeout", "`time` after which a supervisor is ended, and another started, if it makes no progress before it serves; doubled for each in a row (10s)", setDuration(func(c *Config) *time.Duration { return &c.StartTimeout })},
	{"log_level", "`level`: trace, debug, info, warn or error (info)", setText(func(c *Config) *string { return &c.LogLevel })},
	{"secret_file", "`file` of mode 0600 with a secret that clients must know", setText(func(c *Config) *string { return &c.SecretFile })},
	{"policy", "policy `program`, which decides the rights of clients; remembered until the setting is \"none\"", setText(func(c *Config) *string { return &c.Policy })},
	{"policy_config", "`file` whose path the policy program receives", setText(func(c *Config) *string { return &c.PolicyConfig })},
	{"policy_sha256", "SHA-256 `sum` that the policy program must have, in hex", setText(func(c *Config) *string { return &c.PolicySHA256 })},
	{"agent_link", "`true` or false: sessions find the ssh agent of the viewer that attached last (true)", setNegated(func(c *Config) *bool { return &c.NoAgentLink })},
	{"web", "loopback `address` on which the proxy serves WebSockets; 127.0.0.1:0 for any port", setText(func(c *Config) *string { return &c.Web })},
	{"web_origins", "further `origins` of pages that may connect to web, separated by commas", setText(func(c *Config) *string { return &c.WebOrigins })},
	{"cage", "`cgroup` above the cgroups of the sessions (Linux): auto, own, off or a directory of cgroup version 2 (auto)", setText(func(c *Config) *string { return &c.Cage })},
	{"memory_max", "`size`, such as 512M, of the memory of a session; the kernel kills a program of a session that needs more (none)", setLimit(protocol.LabelMemoryMax)},
	{"memory_high", "`size` of memory; a session that uses more is slowed down (none)", setLimit(protocol.LabelMemoryHigh)},
	{"pids_max", "`number` of processes and threads of a session (none)", setLimit(protocol.LabelPIDsMax)},
	{"cpu_max", "`processors`, such as 1.5 or 150%, that a session may use (none)", setLimit(protocol.LabelCPUMax)},
	{"cpu_weight", "`share` of a session against others when processors are scarce, 1 to 10000 (100)", setLimit(protocol.LabelCPUWeight)},
	{"shell_integration", "`true` or false: shells that \"proxy new\" starts report their prompts and commands (false)", setBool(func(c *Config) *bool { return &c.ShellIntegration })},
	{"durable", "`amount` of a session that is stored on disk, so that it outlives the machine: off, screen (the last screen and history) or full, all output (screen)", setText(func(c *Config) *string { return (*string)(&c.Durable) })},
	{"durable_sync", "`time` after which output is stored at the latest, 100ms to 1m (1s)", setDuration(func(c *Config) *time.Duration { return &c.DurableSync })},
	{"durable_session_bytes", "`bytes` stored of one session; the oldest output is deleted first (268435456)", setNumber(func(c *Config) *int { return &c.DurableSession })},
	{"durable_total_bytes", "`bytes` stored of all sessions (2147483648)", setNumber(func(c *Config) *int { return &c.DurableTotal })},
	{"durable_age", "`time` after which stored output is deleted (720h)", setDuration(func(c *Config) *time.Duration { return &c.DurableAge })},
	{"durable_key", "`file` of mode 0600 with the age identity that encrypts what is stored, or ! and a command that prints it (none: not encrypted)", setText(func(c *Config) *string { return &c.DurableKey })},
	{"secret_env", "`names` of variables, separated by spaces, whose values are masked in recordings and in what programs read of a session; * stands for any characters (none)", setSecretEnv},
	{"mask", "`patterns` (RE2), separated by spaces, of text that is masked in the same way (none)", setMask},
	{"revive", "`way` in which \"proxy attach\" treats a session that the machine has lost: ask, shell (it starts a shell without a question) or argv (it starts the session's command) (ask)", setText(func(c *Config) *string { return (*string)(&c.Revive) })},
	{"resume_argv", "`templates` of the commands with which programs continue their work after a reboot, such as \"claude=claude --resume {conversation}\", separated by semicolons (those of claude and codex)", setResume},
	{"ssh_command", "`command` with which other hosts are reached: ssh or a program with the same options (ssh -o ConnectTimeout=15 -o ServerAliveInterval=5)", setSSHCommand},
	{"gate", "`text` that \"proxy gate client-token\" prints, with which hosts are reached through a gate (none)", setText(func(c *Config) *string { return &c.Gate })},
	{"upgrade_from", "`directories` and https URLs, separated by commas; clients of a gate may upgrade this host to programs in and below them (none)", setDirectories},
	{"recordings", "`directory` in which sessions are recorded, or s3://BUCKET/PREFIX (none)", setText(func(c *Config) *string { return &c.Recordings })},
	{"recordings_endpoint", "`address` of the S3-compatible server of that bucket; http is possible to a loopback address only (https://s3.amazonaws.com)", setText(func(c *Config) *string { return &c.RecordingsEndpoint })},
	{"recordings_sessions", "`sessions` that are recorded: labelled, those with the label record=true, or all but those with record=false (labelled)", setText(func(c *Config) *string { return &c.RecordingsSessions })},
	{"recordings_age", "`time` after which recordings are deleted (720h)", setDuration(func(c *Config) *time.Duration { return &c.RecordingsAge })},
	{"recordings_bytes", "`bytes` of recordings of this host; the oldest parts are deleted first; 0: no limit (10737418240)", setNumber(func(c *Config) *int { return &c.RecordingsBytes })},
	{"detach_key", "`keys` that detach \"proxy attach\", one or two, or none (ctrl-\\ d)", setText(func(c *Config) *string { return &c.DetachKey })},
}

// DefaultSSHCommand returns the default of the setting ssh_command. ssh then notices within 20 s that
// the network is gone.
func DefaultSSHCommand() []string {
	return []string{"ssh", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=5"}
}

func setSSHCommand(c *Config, v string) error {
	c.SSHCommand = strings.Fields(v)
	return nil
}

func setSecretEnv(c *Config, v string) (err error) {
	c.SecretEnv, err = mask.ParseNames(v)
	return err
}

func setMask(c *Config, v string) (err error) {
	c.Mask, err = mask.ParsePatterns(v)
	return err
}

func setNumber(field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		*field(c) = n
		return nil
	}
}

func setDuration(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as \"90s\" or \"10m\"", v)
		}
		*field(c) = d
		return nil
	}
}

func setBool(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v != "true" && v != "false" {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		*field(c) = v == "true"
		return nil
	}
}

// setNegated returns a setter like setBool for a field that means the opposite.
func setNegated(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error {
		if err := setBool(field)(c, v); err != nil {
			return err
		}
		*field(c) = !*field(c)
		return nil
	}
}

func setLimit(name string) func(*Config, string) error {
	return func(c *Config, v string) error {
		f, _ := protocol.LimitFieldOf(name)
		if err := f.Parse(&c.Limits, v); err != nil {
			return errors.New(protocol.AsError(err).Message)
		}
		return nil
	}
}

func setText(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error { *field(c) = v; return nil }
}

// setDirectories sets the directories and URLs from which this host may be upgraded.
func setDirectories(c *Config, v string) error {
	c.UpgradeFrom = nil
	if v == "" {
		return nil
	}
	for dir := range strings.SplitSeq(v, ",") {
		dir = strings.TrimSpace(dir)
		if strings.HasPrefix(dir, "https://") { // package hostupgrade parses it
			c.UpgradeFrom = append(c.UpgradeFrom, dir)
			continue
		}
		if !filepath.IsAbs(dir) || filepath.Clean(dir) == string(filepath.Separator) {
			return fmt.Errorf("%.80q is not the absolute path of a directory below the root, and no https URL", dir)
		}
		c.UpgradeFrom = append(c.UpgradeFrom, filepath.Clean(dir))
	}
	return nil
}

// setEarlyExit stores a 0 from the user, which means "no check", as -1. In Config a zero
// field means the default.
func setEarlyExit(c *Config, v string) error {
	err := setDuration(func(c *Config) *time.Duration { return &c.EarlyExit })(c, v)
	if err == nil && c.EarlyExit == 0 {
		c.EarlyExit = -1
	}
	return err
}

// Flags defines a flag for every setting, or for the settings with the names if there are any. The returned
// map contains the flags that were given, once fs has been parsed; Load expects this map.
func Flags(fs *flag.FlagSet, names ...string) map[string]string {
	given := map[string]string{}
	for _, s := range settings {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		fs.Func(s.flag(), s.usage, func(v string) error {
			given[s.name] = v
			return s.set(new(Config), v) // the parser of fs then reports the mistake together with the flag
		})
	}
	return given
}

// ofSupervisor has the names of the settings that the supervisor uses. The others are those of the proxy and of its commands.
var ofSupervisor = strings.Fields("ring_bytes scrollback_lines exit_keep exit_records max_sessions originator_sessions spawn_rate grace " +
	"empty_timeout crash_limit crash_pause start_timeout log_level secret_file cage durable durable_sync durable_session_bytes " +
	"durable_total_bytes durable_age durable_key secret_env mask")

// IsOfSupervisor reports whether the supervisor uses the setting with the name.
func IsOfSupervisor(name string) bool { return slices.Contains(ofSupervisor, name) }

// SupervisorArgs returns the arguments that set those flags in given again that a supervisor uses.
func SupervisorArgs(given map[string]string) (args []string) {
	for _, s := range settings {
		if v, ok := given[s.name]; ok && IsOfSupervisor(s.name) {
			args = append(args, "--"+s.flag()+"="+v)
		}
	}
	return args
}

// Names returns the name of the flag and that of the environment variable of a setting.
func Names(name string) (flag, variable string) {
	s := setting{name: name}
	return s.flag(), s.env()
}

// ErrInvalid matches the errors of Load and Secret if the settings are invalid.
var ErrInvalid = errors.New("configuration")

// Load reads the settings from the config file in dirs.Config, if it exists, from the
// environment (env is os.Getenv or the like), and from the map that Flags returned, or nil.
func Load(dirs Dirs, env func(string) string, flags map[string]string) (Config, error) {
	c := Config{}.withDefaults() // before the settings are read, so that a 0 from the user is not replaced by a default
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
		errs = append(errs, fmt.Errorf("%s: there is no setting %q; remove it or correct its name", path, name))
	}
	if err := errors.Join(append(errs, c.validate())...); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return c, nil
}

// maxFile is the limit of the config file in bytes.
const maxFile = 1 << 20

// readRegular returns the content of a regular file of at most maxFile bytes. A pipe would block, and a device may have no
// end.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return data, err
}

// readFile returns the values in the config file as texts, so that the file, the
// environment and the flags share one parser. If there is no file, it returns nil.
func readFile(path string) (map[string]string, error) {
	data, err := readRegular(path)
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
		return nil, errors.New("something follows the JSON object; remove it")
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

// Secret returns the content of the secret file without surrounding white space, or "" if
// no file is set. It returns an error if other users can read or write the file.
func (c Config) Secret() (string, error) {
	if c.SecretFile == "" {
		return "", nil
	}
	secret, err := readSecret(c.SecretFile)
	if err != nil {
		return "", fmt.Errorf("%w: secret file %s: %w", ErrInvalid, c.SecretFile, err)
	}
	return secret, nil
}

// maxPrivate bounds the bytes that ReadPrivate returns.
const maxPrivate = 1 << 20

// ReadPrivate returns the content of a regular file of this process's user. It returns an error
// if other users have a right to the file. It does not wait for the writer of a named pipe.
func ReadPrivate(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat() // of the open file, because another file may have the name by now
	if err != nil {
		return nil, err
	}
	if err := checkSecretFile(fi); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxPrivate))
}

func readSecret(path string) (string, error) {
	data, err := ReadPrivate(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(data))
	if len(data) > maxSecret || len(secret) < minSecret {
		return "", fmt.Errorf("the secret must have %d to %d bytes", minSecret, maxSecret)
	}
	return secret, nil
}
