package cli

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"holdfast/protocol"
	"holdfast/shared/plain"
)

// whereIs returns the current directory of a session, or the one in which it was started if that is
// unknown.
func whereIs(s *protocol.SessionInfo) string {
	if s.CurrentCwd == "" && s.Foreground != nil {
		return cmp.Or(s.Foreground.Cwd, s.Cwd)
	}
	return cmp.Or(s.CurrentCwd, s.Cwd)
}

// shortDir abbreviates the home directory to ~.
func shortDir(dir string) string {
	home := strings.TrimSuffix(os.Getenv("HOME"), "/")
	if rest, ok := strings.CutPrefix(dir, home); ok && home != "" && (rest == "" || rest[0] == '/') {
		return "~" + rest
	}
	return dir
}

// stateText returns the state of a session for people.
func stateText(s protocol.SessionInfo) string {
	if s.Exit == nil {
		if s.Frozen {
			return string(s.State) + ", frozen"
		}
		if f := s.Foreground; f != nil && f.Stopped && s.State == protocol.StateRunning {
			return "stopped"
		}
		if s.Degraded {
			return string(s.State) + ", no screen"
		}
		return string(s.State)
	}
	if s.Exit.Signal != "" {
		return "exited " + s.Exit.Signal
	}
	return fmt.Sprintf("exited %d", s.Exit.ExitCode)
}

// foregroundName returns the name of the session's foreground process, or "-" if it is unknown.
func foregroundName(s protocol.SessionInfo) string {
	if s.Foreground == nil || s.Foreground.Name == "" {
		return "-"
	}
	return strings.ReplaceAll(plain.Text(s.Foreground.Name), " ", "_")
}

// titleAndCommand returns a session's command, preceded by the title that a user has given it.
func titleAndCommand(s protocol.SessionInfo) string {
	command := commandLine(s.Argv)
	if title := s.Labels[protocol.LabelTitle]; title != "" {
		return title + ": " + command
	}
	return command
}

// commandLine returns the command in at most 60 characters.
func commandLine(argv []string) string {
	line := strings.Join(argv, " ")
	if r := []rune(line); len(r) > 60 {
		line = string(r[:59]) + "…"
	}
	return line
}

// useText returns how much memory, how many processes and how much processor time a session uses;
// "-" if that is unknown.
func useText(c *protocol.Cage) (memory, pids, cpu string) {
	if c == nil {
		return "-", "-", "-"
	}
	memory, pids = "-", "-"
	if c.MemoryBytes > 0 {
		memory = protocol.FormatBytes(c.MemoryBytes)
	}
	if c.PIDs > 0 {
		pids = fmt.Sprint(c.PIDs)
	}
	return memory, pids, seconds(c.UserMS + c.SystemMS)
}

// howEnded describes the exit code or signal.
func howEnded(e *protocol.ExitRecord) string {
	how := fmt.Sprintf("with code %d", e.ExitCode)
	switch {
	case e.Signal != "":
		how = "by " + plain.Text(e.Signal)
	case e.ExitCode < 0:
		how = "with an unknown code"
	}
	if e.CoreDumped {
		how += ", and dumped core"
	}
	return how
}
