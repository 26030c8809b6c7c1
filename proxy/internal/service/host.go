package service

import (
	"context"
	"path/filepath"
	"time"

	"holdfast/protocol"
)

// A runner runs a program and returns what it prints.
type runner func(ctx context.Context, argv ...string) (string, error)

// A Host is the system and the user that a unit is for.
type Host struct {
	OS  string // as runtime.GOOS
	UID int
	Env func(string) string
	Run func(ctx context.Context, argv ...string) (string, error)
}

// A manager is a service manager: what it is told, and how.
type manager interface {
	unit(Spec) (Unit, error)
	// state asks it; an error is that it does not answer.
	state(context.Context, runner, Unit) (State, error)
	install(u Unit, s State, changed, now bool) [][]string
	// uninstall returns what is due before the file goes, and after.
	uninstall(u Unit, s State, now bool) (before, after [][]string)
	// links are what enabling has made; they go with the file where no manager
	// answers that would remove them.
	links(Unit) []string
	why(Unit) string // the command that tells why it failed
}

// State is what a manager knows of a unit.
type State struct {
	Enabled bool `json:"enabled"` // it is started at login
	Active  bool `json:"active"`  // it runs
	PID     int  `json:"pid"`     // of its main process, 0 for none

	Known    bool   `json:"-"` // it answers
	Loaded   bool   `json:"-"` // there is something to stop
	Spares   bool   `json:"-"` // a stop spares all but the main process
	Packaged string `json:"-"` // the file that it has the unit from, where that is not ours
}

// patience is how long a manager may take to say how things are.
const patience = 5 * time.Second

func (h Host) manager() (manager, error) {
	home := absolute(h.Env("HOME"))
	config := absolute(h.Env("XDG_CONFIG_HOME"))
	switch {
	case h.OS != "linux" && h.OS != "darwin":
		return nil, protocol.Errorf(protocol.CodeUnsupportedOS, "services are made for systemd on Linux and for launchd on macOS; elsewhere have yours run: proxy --handoff --foreground")
	case h.OS == "linux" && config != "":
		return systemd{filepath.Join(config, "systemd", "user")}, nil
	case home == "":
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "no home directory is known; set HOME")
	case h.OS == "linux":
		return systemd{filepath.Join(home, ".config", "systemd", "user")}, nil
	}
	return launchd{filepath.Join(home, "Library", "LaunchAgents"), h.UID}, nil
}

// Unit returns the unit for a proxy. It touches nothing.
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

// absolute returns nothing for a relative path, as the XDG specification has it.
func absolute(path string) string {
	if !filepath.IsAbs(path) {
		return ""
	}
	return path
}

// Moving returns of the environment what moves the user's directories, and what
// a service manager does not know by itself.
func (h Host) Moving() (env []string) {
	names := []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME"}
	if h.OS == "darwin" {
		names = append(names, "XDG_RUNTIME_DIR") // systemd sets its own, the one by which it is reached
	}
	for _, n := range names {
		if v := absolute(h.Env(n)); v != "" {
			env = append(env, n+"="+v)
		}
	}
	return env
}
