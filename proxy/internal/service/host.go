package service

import (
	"context"
	"path/filepath"
	"time"

	"holdfast/protocol"
)

// A runner runs a program and returns its standard output.
type runner func(ctx context.Context, argv ...string) (string, error)

// A Host describes the system and the user of a unit.
type Host struct {
	OS  string // as runtime.GOOS
	UID int
	Env func(string) string
	Run func(ctx context.Context, argv ...string) (string, error)
}

// A manager is a service manager: it composes units and the commands for them.
type manager interface {
	unit(Spec) (Unit, error)
	// state asks the manager about a unit. An error means that the manager does not answer.
	state(context.Context, runner, Unit) (State, error)
	install(u Unit, s State, changed, now bool) [][]string
	// uninstall returns the commands to run before the file is removed, and after.
	uninstall(u Unit, s State, now bool) (before, after [][]string)
	// links returns the links that enabling a unit has made. If no manager answers that would
	// remove them, they are removed with the file.
	links(Unit) []string
	why(Unit) string // returns the command that shows why a unit failed
}

// A State is the state of a unit in its manager.
type State struct {
	Enabled bool `json:"enabled"` // the manager starts the unit at login
	Active  bool `json:"active"`  // the unit runs
	PID     int  `json:"pid"`     // of the unit's main process; 0 if there is none

	Known    bool   `json:"-"` // the manager has answered
	Loaded   bool   `json:"-"` // a stop has an effect
	Spares   bool   `json:"-"` // a stop ends only the main process
	Packaged string `json:"-"` // path of the unit's file if "proxy service install" did not write it
}

// patience is how long a manager may take to answer.
const patience = 5 * time.Second

func (h Host) manager() (manager, error) {
	home := absolute(h.Env("HOME"))
	config := absolute(h.Env("XDG_CONFIG_HOME"))
	switch {
	case h.OS != "linux" && h.OS != "darwin":
		return nil, protocol.Errorf(protocol.CodeUnsupportedOS, "services exist only for systemd on Linux and launchd on macOS; elsewhere let your service manager run: proxy --handoff --foreground")
	case h.OS == "linux" && config != "":
		return systemd{filepath.Join(config, "systemd", "user")}, nil
	case home == "":
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "the home directory is unknown: set HOME")
	case h.OS == "linux":
		return systemd{filepath.Join(home, ".config", "systemd", "user")}, nil
	}
	return launchd{filepath.Join(home, "Library", "LaunchAgents"), h.UID}, nil
}

// Unit returns the unit for a proxy. It changes nothing.
func (h Host) Unit(s Spec) (Unit, error) {
	_, u, err := h.unit(s)
	return u, err
}

func (h Host) unit(s Spec) (manager, Unit, error) {
	m, err := h.manager()
	if err != nil {
		return nil, Unit{}, err
	}
	if err := s.check(); err != nil {
		return nil, Unit{}, err
	}
	u, err := m.unit(s)
	return m, u, err
}

func (h Host) state(ctx context.Context, m manager, u Unit) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return m.state(ctx, h.Run, u)
}

// absolute returns "" for a relative path, because the XDG specification demands that such a path
// is ignored.
func absolute(path string) string {
	if !filepath.IsAbs(path) {
		return ""
	}
	return path
}

// Moving returns the environment variables that move the user's directories and that a service
// manager does not know by itself.
func (h Host) Moving() (env []string) {
	names := []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME"}
	if h.OS == "darwin" {
		names = append(names, "XDG_RUNTIME_DIR") // systemd sets its own XDG_RUNTIME_DIR, by which it is reached
	}
	for _, n := range names {
		if v := absolute(h.Env(n)); v != "" {
			env = append(env, n+"="+v)
		}
	}
	return env
}
