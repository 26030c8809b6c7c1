package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"holdfast/shared/config"
)

// lastSettings is the file in the state directory with the settings that a supervisor
// began with last.
const lastSettings = "supervisor.settings.json"

// settings are the settings that a process uses, and the error in the configured ones if the process
// uses earlier ones instead.
type settings struct {
	config.Config
	dirs  config.Dirs
	wrong error // why the settings cannot be used; nil if they are in force
}

// loadSettings loads the settings. If they cannot be used and sessions depend on this
// process, it returns those of the last start: a mistake in holdfast.json, or a directory that
// cannot be made or is open to other users, must not keep a supervisor that has died from coming
// back, nor a keeper from holding on to the sessions. The settings in such a directory are not
// read, because another user may have put them there.
func loadSettings(o *options, isDependedOn bool) (settings, error) {
	dirs, cfg, err := load(o)
	s := settings{Config: cfg, dirs: dirs}
	if err == nil || !isDependedOn {
		return s, err
	}
	s.wrong = err
	data, err := config.ReadPrivate(filepath.Join(dirs.State, lastSettings))
	if err == nil {
		err = json.Unmarshal(data, &s.Config)
	}
	if err != nil { // the defaults are not tried: a secret that is demanded would be so no more
		return s, fmt.Errorf("%w; nor can those of the last start: %w", s.wrong, err)
	}
	return s, nil
}

// begun keeps the settings for later starts, or says that they are those of an earlier one.
func (s *settings) begun(log zerolog.Logger) {
	if s.wrong != nil {
		log.Error().Err(s.wrong).Msg("settings cannot be used; the supervisor continues with those of its last start")
		return
	}
	path := filepath.Join(s.dirs.State, lastSettings)
	data, err := json.Marshal(s.Config)
	if err == nil {
		err = os.WriteFile(path+".tmp", append(data, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		log.Warn().Err(err).Msg("settings not saved; a mistake in them may keep the next supervisor from starting")
	}
}
