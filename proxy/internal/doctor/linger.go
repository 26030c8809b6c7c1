package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// linger finds out whether a logout would end the supervisor: unless lingering is enabled,
// systemd ends the user's manager at the last logout, and the supervisor's scope with it.
func (l *inspection) linger(ctx context.Context) []Finding {
	dir := l.Env("XDG_RUNTIME_DIR")
	if l.Proc == "" || dir == "" {
		return orOK(nil, "linger", "no systemd user manager")
	}
	if _, err := os.Stat(filepath.Join(dir, "systemd")); err != nil {
		return orOK(nil, "linger", "no systemd user manager")
	}
	text, err := l.output(ctx, "loginctl", "show-user", strconv.Itoa(os.Geteuid()), "--property=Linger")
	const fix = "loginctl enable-linger"
	switch {
	case err != nil:
		return []Finding{{"linger", Note, fmt.Sprintf("unknown whether sessions outlive a logout: %v", err), fix}}
	case text == "Linger=yes":
		return orOK(nil, "linger", "sessions outlive a logout")
	}
	return []Finding{{"linger", Note,
		"your last logout ends the supervisor and its sessions; KillUserProcesses, by which any logout may: " + l.killsUserProcesses(ctx), fix}}
}

// killsUserProcesses returns "yes", "no" or "unknown".
func (l *inspection) killsUserProcesses(ctx context.Context) string {
	text, err := l.output(ctx, "busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
		"org.freedesktop.login1.Manager", "KillUserProcesses")
	switch {
	case err == nil && text == "b true":
		return "yes"
	case err == nil && text == "b false":
		return "no"
	}
	return "unknown"
}

func (l *inspection) output(ctx context.Context, name string, args ...string) (string, error) {
	text, err := within(ctx, func(ctx context.Context) (string, error) { return l.Output(ctx, name, args...) })
	return strings.TrimSpace(text), err
}
