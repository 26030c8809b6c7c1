package config

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// allowed are the variables a session inherits, by why it needs them. All else
// is left out: what is missing is noticed and asked for, what leaks is not.
// That keeps out, unnamed, what tells a program who has launched it and would
// change what it does: ELECTRON_*, npm_*, NODE_OPTIONS, LISTEN_* and
// NOTIFY_SOCKET (a supervisor's, a child would speak in its name),
// INVOCATION_ID, PLUGIN_*, VIRTUAL_ENV, and HOLDFAST_* itself. What describes
// the terminal (TERM, COLORTERM) is set for each session.
var allowed = slices.Concat(
	// Who and where: without them hardly a program works.
	[]string{"HOME", "USER", "LOGNAME", "SHELL", "PATH", "TMPDIR", "TZ"},
	// Which language to speak.
	[]string{"LANG", "LANGUAGE", "LC_*", "__CF_USER_TEXT_ENCODING"},
	// The desktop session: its directories, display and bus, so that editors
	// open windows and keyrings answer. They name places and hold no secret.
	[]string{"XDG_*", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "WSL_DISTRO_NAME", "WSL_INTEROP"},
	// The key agent: a socket's path. The agent itself decides who may use it.
	[]string{"SSH_AUTH_SOCK"},
	// What the user likes, where it was set at login and not in the shell's rc.
	[]string{"EDITOR", "VISUAL", "PAGER", "MANPAGER", "BROWSER", "LESS", "LS_COLORS", "COLORFGBG", "NO_COLOR", "CLICOLOR"},
	// Where toolchains are, for a command that is run without a login shell;
	// PATH alone does not make their shims work.
	[]string{"GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT"},
	// How to reach the network where it is reached by a proxy only. See below
	// for those that carry a password.
	[]string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"},
)

// secretWords in a name keep a variable out, allowed prefix or not:
// XDG_ACTIVATION_TOKEN is one.
var secretWords = []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "KEY", "COOKIE"}

// CleanEnv returns of environ, in its order, what a session may inherit.
func CleanEnv(environ []string) []string {
	clean := []string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && isAllowed(name) && !isSecret(name, value) {
			clean = append(clean, e)
		}
	}
	return clean
}

// forDaemons are the variables that our daemons get beside those of a session and
// HOLDFAST_*: what tunes the Go runtime, and what a policy's interpreter needs.
var forDaemons = []string{
	"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOTRACEBACK", "GORACE", "GOCOVERDIR",
	"PYTHONPATH", "VIRTUAL_ENV", "NODE_PATH",
}

// notForDaemons are variables of HOLDFAST_* that belong to one command.
var notForDaemons = []string{"HOLDFAST_TOKEN", "HOLDFAST_SESSION"}

// DaemonEnv returns of environ, in its order, what a supervisor or a proxy is
// started with. A daemon lives longer than the command that starts it, serves
// others as well, and every process of the user reads its environment in /proc: so
// it has nothing that was meant for that command. On Linux it gets the user's
// runtime directory as XDG_RUNTIME_DIR if environ has none, as under cron, so that
// the user's service manager is reached.
//
// On Windows environ is returned as it is: programs do not start without variables
// of the system's, and only the user reads another process's.
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
	case slices.Contains(forDaemons, name), slices.Contains(ourVariables(), name): // a path, at most, to what is secret
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

// LoginShell returns the user's shell: $SHELL, else what the user database
// says, else /bin/sh. Only an absolute path to a program counts.
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

// shellOf looks a user up in a passwd file; "" if that fails. (On macOS users
// are elsewhere, but SHELL is always set.)
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
