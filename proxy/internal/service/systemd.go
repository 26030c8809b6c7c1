package service

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"holdfast/protocol"
	"holdfast/shared/config"
)

// systemd is a user's systemd manager.
type systemd struct{ dir string } // directory of the units

// unit composes a service file, as systemd.service(5) and systemd.syntax(7) describe.
func (m systemd) unit(s Spec) (Unit, error) {
	if strings.ContainsAny(s.Program, `"'\`) {
		return Unit{}, protocol.Errorf(protocol.CodeInvalidArgument,
			"systemd runs no program with a quote or a backslash in its path, such as %s; move it", s.Program)
	}
	name := "holdfast"
	if s.Proxy != config.DefaultProxy {
		name += "-" + s.Proxy
	}
	name += s.suffix() + ".service"
	var b strings.Builder
	fmt.Fprintf(&b, `# %s, which overwrites it.
# For settings of your own: systemctl --user edit %s
[Unit]
Description=%s

[Service]
Type=notify
# After a handoff the successor says that it is the main process.
NotifyAccess=all
`, mark, name, percent(s.describe()))
	for _, e := range s.Env {
		fmt.Fprintf(&b, "Environment=%s\n", word(e))
	}
	fmt.Fprintf(&b, `# Serves, and where a proxy serves already takes over from it.
ExecStart=%s
ExecReload=%s
# A stop ends the proxy alone: the supervisor and its shells continue.
KillMode=process
# Nor does a shell that runs out of memory end the proxy.
OOMPolicy=continue
Restart=on-failure
RestartSec=1
# No sandbox and no limits, on purpose (NoNewPrivileges, PrivateTmp, ProtectHome,
# ...): shells descend from this and would have them too, in which sudo fails,
# and /tmp and the home directory are not the user's.

[Install]
WantedBy=default.target
`, commandLine(s.Program, s.start()), commandLine(s.Program, s.args("--handoff")))
	return Unit{name, filepath.Join(m.dir, name), b.String()}, nil
}

// Packaged returns the unit that a package installs for all users. It is the unit that Install
// writes, without the mark, because Install must not overwrite it.
func Packaged(program string) (Unit, error) {
	u, err := systemd{"/usr/lib/systemd/user"}.unit(Spec{Program: program, Proxy: config.DefaultProxy})
	_, u.Text, _ = strings.Cut(u.Text, "\n") // the line with the mark is the first one
	return u, err
}

func (s Spec) describe() string {
	text := "Holdfast, terminals that outlive everything around them"
	if s.Proxy != config.DefaultProxy {
		text += ", proxy " + s.Proxy
	}
	if s.Dir != "" {
		text += ", in " + s.Dir
	}
	return text
}

// commandLine returns the command of an Exec line. If a word contains a dollar, the command
// begins with a colon, so that systemd does not expand it; in a program's path a dollar cannot be
// escaped.
func commandLine(program string, args []string) string {
	words := []string{word(program)}
	for _, a := range args {
		words = append(words, word(a))
	}
	text := strings.Join(words, " ")
	if strings.Contains(text, "$") {
		text = ":" + text
	}
	return text
}

// word returns a word in quotes if it needs them.
func word(s string) string {
	s = percent(s)
	if !strings.ContainsAny(s, " \"'\\;") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// percent escapes each %, because systemd would read it as a specifier.
func percent(s string) string { return strings.ReplaceAll(s, "%", "%%") }

func (m systemd) state(ctx context.Context, run runner, u Unit) (State, error) {
	out, err := run(ctx, "systemctl", "--user", "show", u.Name, "--property=ActiveState,UnitFileState,MainPID,KillMode,FragmentPath")
	if err != nil {
		return State{}, err
	}
	is := map[string]string{}
	for l := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(l), "=")
		is[name] = value
	}
	s := State{Known: true, Enabled: is["UnitFileState"] == "enabled", Active: is["ActiveState"] == "active" || is["ActiveState"] == "reloading"}
	s.PID, _ = strconv.Atoi(is["MainPID"])
	if p := is["FragmentPath"]; p != u.Path {
		s.Packaged = p
	}
	s.Loaded = s.Active || is["ActiveState"] == "activating" || is["ActiveState"] == "deactivating"
	s.Spares = is["KillMode"] == "process" || is["KillMode"] == "none"
	return s, nil
}

func (m systemd) install(u Unit, s State, changed, now bool) [][]string {
	// The unit is named by its path, because XDG_CONFIG_HOME of the manager may differ from the
	// one here.
	all := [][]string{m.command("daemon-reload"), m.command("enable", u.Path)}
	switch {
	case !now:
	case !s.Active:
		all = append(all, m.command("start", u.Name))
	case changed:
		all = append(all, m.command("reload", u.Name)) // hands off to the program that the unit names now
	}
	return all
}

func (m systemd) uninstall(u Unit, s State, now bool) (before, after [][]string) {
	if now && s.Loaded {
		before = append(before, m.command("stop", u.Name))
	}
	if s.Known {
		before = append(before, m.command("disable", u.Name))
	}
	return before, [][]string{m.command("daemon-reload")}
}

func (m systemd) command(args ...string) []string {
	return append([]string{"systemctl", "--user"}, args...)
}

func (m systemd) links(u Unit) []string {
	return []string{filepath.Join(m.dir, "default.target.wants", u.Name)}
}

func (m systemd) why(u Unit) string { return "journalctl --user --unit " + u.Name }
