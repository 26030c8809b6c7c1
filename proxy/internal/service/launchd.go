package service

import (
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// launchd is the launchd manager of a user who is logged in at the screen.
type launchd struct {
	dir string // directory of the agents
	uid int
}

// unit composes a property list, as launchd.plist(5) describes.
func (m launchd) unit(s Spec) (Unit, error) {
	label := "dev.holdfast." + s.Proxy + s.suffix()
	var b strings.Builder
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- %s, which overwrites it. -->
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>%s</string>
	<!-- Serves, and where a proxy serves already takes over from it. -->
	<key>ProgramArguments</key>
	<array>
`, mark, text(label))
	for _, a := range append([]string{s.Program}, s.start()...) {
		fmt.Fprintf(&b, "\t\t<string>%s</string>\n", text(a))
	}
	b.WriteString("\t</array>\n")
	if len(s.Env) > 0 {
		b.WriteString("\t<key>EnvironmentVariables</key>\n\t<dict>\n")
		for _, e := range s.Env {
			name, value, _ := strings.Cut(e, "=")
			fmt.Fprintf(&b, "\t\t<key>%s</key>\n\t\t<string>%s</string>\n", text(name), text(value))
		}
		b.WriteString("\t</dict>\n")
	}
	fmt.Fprintf(&b, `	<key>RunAtLoad</key>
	<true/>
	<!-- Not after a handoff: then the one before ends well, and its successor,
	     which launchd does not know, serves. "launchctl kickstart" takes over. -->
	<key>KeepAlive</key>
	<dict>
		<key>SuccessfulExit</key>
		<false/>
	</dict>
	<!-- The proxy's end must not end the supervisor and its shells. -->
	<key>AbandonProcessGroup</key>
	<true/>
	<!-- Terminals are typed in: not throttled as background work is. -->
	<key>ProcessType</key>
	<string>Interactive</string>
	<key>LimitLoadToSessionType</key>
	<string>Aqua</string>
	<key>StandardErrorPath</key>
	<string>%s</string>
</dict>
</plist>
`, text(s.Log))
	return Unit{label, filepath.Join(m.dir, label+".plist"), b.String()}, nil
}

func text(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // writing to a strings.Builder cannot fail
	return b.String()
}

func (m launchd) state(ctx context.Context, run runner, u Unit) (State, error) {
	if _, err := run(ctx, "launchctl", "print", m.domain()); err != nil {
		return State{}, err
	}
	s := State{Known: true, Spares: true}
	out, err := run(ctx, "launchctl", "print", m.target(u))
	if err != nil {
		return s, nil // the agent is not loaded
	}
	s.Loaded, s.Enabled = true, true
	for l := range strings.Lines(out) {
		if pid, ok := strings.CutPrefix(strings.TrimSpace(l), "pid = "); ok {
			n, _ := strconv.Atoi(pid)
			s.PID = cmp.Or(s.PID, n)
		}
	}
	s.Active = s.PID != 0
	return s, nil
}

// install returns the commands for a new or changed file. If a loaded agent has changed, launchd
// can read its file again only after the agent was ended.
func (m launchd) install(u Unit, s State, changed, now bool) [][]string {
	all := [][]string{{"launchctl", "enable", m.target(u)}}
	if !now {
		return all // launchd loads the agent at the next login
	}
	if s.Loaded && changed {
		all, s.Loaded = append(all, []string{"launchctl", "bootout", m.target(u)}), false
	}
	switch {
	case !s.Loaded:
		all = append(all, []string{"launchctl", "bootstrap", m.domain(), u.Path})
	case !s.Active:
		all = append(all, []string{"launchctl", "kickstart", m.target(u)})
	}
	return all
}

func (m launchd) uninstall(u Unit, s State, now bool) (before, after [][]string) {
	if now && s.Loaded {
		before = [][]string{{"launchctl", "bootout", m.target(u)}}
	}
	return before, nil
}

func (m launchd) domain() string { return "gui/" + strconv.Itoa(m.uid) }

func (m launchd) target(u Unit) string { return m.domain() + "/" + u.Name }

func (m launchd) links(Unit) []string { return nil }

func (m launchd) why(u Unit) string { return "launchctl print " + m.target(u) }
