package config

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// allowed lists the variables that a session inherits, and why it needs them. Every other
// variable is left out, because a user notices a missing variable and asks for it, but does
// not notice a variable that leaks. The list therefore excludes variables that tell a
// program which process launched it, and so change its behaviour: ELECTRON_*, npm_*,
// NODE_OPTIONS, INVOCATION_ID, PLUGIN_*, VIRTUAL_ENV, and HOLDFAST_* itself. It also
// excludes LISTEN_* and NOTIFY_SOCKET of a supervisor, because a child could otherwise send
// service messages as the supervisor. TERM and COLORTERM are set for each session.
var allowed = slices.Concat(
	// The user, the home and the path. Hardly any program works without them.
	[]string{"HOME", "USER", "LOGNAME", "SHELL", "PATH", "TMPDIR", "TZ"},
	// The language.
	[]string{"LANG", "LANGUAGE", "LC_*", "__CF_USER_TEXT_ENCODING"},
	// The directories, display and bus of the desktop session, so that editors can open
	// windows and keyrings answer. These variables contain addresses and no secrets.
	[]string{"XDG_*", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "WSL_DISTRO_NAME", "WSL_INTEROP"},
	// The path of the ssh agent's socket. The agent itself decides which user may use it.
	[]string{"SSH_AUTH_SOCK"},
	// Preferences that the user sets at login and not in a file of the shell.
	[]string{"EDITOR", "VISUAL", "PAGER", "MANPAGER", "BROWSER", "LESS", "LS_COLORS", "COLORFGBG", "NO_COLOR", "CLICOLOR"},
	// The directories of toolchains. A command that runs without a login shell needs them,
	// because the shims of these toolchains do not work with PATH alone.
	[]string{"GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT"},
	// The proxies for HTTP, because some networks are reached only through a proxy. isSecret
	// excludes the values that contain a password.
	[]string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"},
)

// secretWords are parts of names. A variable with such a part in its name is left out even if
// it is in allowed. XDG_ACTIVATION_TOKEN is an example.
var secretWords = []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "KEY", "COOKIE"}

// CleanEnv returns the variables of environ that a session may inherit, in the same order.
func CleanEnv(environ []string) []string {
	clean := []string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && isAllowed(name) && !isSecret(name, value) {
			clean = append(clean, e)
		}
	}
	return clean
}

// forDaemons lists variables that supervisors and proxies get in addition to those of a
// session and to HOLDFAST_*: settings of the Go runtime, variables that the interpreter
// of a policy program needs, and the place of the credentials for a bucket with recordings.
var forDaemons = []string{
	"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOTRACEBACK", "GORACE", "GOCOVERDIR",
	"PYTHONPATH", "VIRTUAL_ENV", "NODE_PATH",
	"AWS_PROFILE", "AWS_REGION", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
}

// notForDaemons lists variables of HOLDFAST_* that are meant for a single command.
var notForDaemons = []string{"HOLDFAST_TOKEN", "HOLDFAST_SESSION", "HOLDFAST_INSTANCE", "HOLDFAST_GATE"}

// DaemonEnv returns the variables of environ with which a supervisor or a proxy is started,
// in the same order. A daemon lives longer than the command that starts it, serves other
// commands as well, and its environment is visible to every process of the user in /proc.
// It therefore must not get variables that were meant for that command. If environ has no
// XDG_RUNTIME_DIR, as under cron, DaemonEnv adds the user's runtime directory on Linux, so
// that the daemon can reach the user's service manager.
//
// On Windows DaemonEnv returns environ unchanged, because programs do not start without
// certain variables of the system, and because only the user can read the environment of
// the process.
func DaemonEnv(environ []string) []string { return thisSystem().daemonEnv(environ) }

func (s system) daemonEnv(environ []string) []string {
	if s.goos == "windows" {
		return environ
	}
	env := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	runtime := s.runtime(func(name string) string { return env[name] })
	clean := []string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && isForDaemons(name, value) && (name != "XDG_RUNTIME_DIR" || value == runtime) {
			clean = append(clean, e)
		}
	}
	if runtime != "" && runtime != env["XDG_RUNTIME_DIR"] {
		clean = append(clean, "XDG_RUNTIME_DIR="+runtime)
	}
	return clean
}

func isForDaemons(name, value string) bool {
	switch {
	case slices.Contains(notForDaemons, name):
		return false
	case slices.Contains(forDaemons, name), slices.Contains(knownVariables(), name): // they contain no secret, at most the path of one
		return true
	}
	return (isAllowed(name) || strings.HasPrefix(name, prefix)) && !isSecret(name, value)
}

func isAllowed(name string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		if prefix, ok := strings.CutSuffix(a, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return name == a
	})
}

func isSecret(name, value string) bool {
	upper := strings.ToUpper(name)
	if strings.HasSuffix(upper, "_PROXY") {
		return strings.Contains(value, "@") // http://user:password@proxy
	}
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(upper, w) })
}

// LoginShell returns the absolute path of the user's shell: $SHELL, or else the shell in
// /etc/passwd, or else /bin/sh. It ignores a path unless an executable file is there.
func LoginShell() string {
	return loginShell(os.Getenv("SHELL"), "/etc/passwd", os.Getuid())
}

func loginShell(env, passwd string, uid int) string {
	for _, shell := range []string{env, shellOf(passwd, uid)} {
		if isProgram(shell) {
			return shell
		}
	}
	return "/bin/sh"
}

// shellOf returns the shell of a user in a passwd file, or "" if the file has no such
// user. macOS keeps its users elsewhere, but always sets SHELL.
func shellOf(passwd string, uid int) string {
	data, err := os.ReadFile(passwd)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) == 7 && f[2] == strconv.Itoa(uid) {
			return f[6]
		}
	}
	return ""
}

func isProgram(path string) bool {
	if !filepath.IsAbs(path) {
		return false
	}
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode().Perm()&0o111 != 0
}
