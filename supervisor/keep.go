//go:build linux || darwin

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"holdfast/shared/config"
	mark "holdfast/shared/keep"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/supervisor/internal/fdstore"
	"holdfast/supervisor/internal/keeper"
	"holdfast/supervisor/internal/keeper/wire"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/session"
)

// keep runs the keeper, which runs this program again as the supervisor proper. It
// does not return.
func keep(o *options) error {
	if err := pty.Seal(); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	dirs, cfg, err := load(o)
	if err != nil {
		return err
	}
	log, closeLog, err := openLog(o, dirs, cfg, "keeper")
	if err != nil {
		return err
	}
	argv, err := supervisorArgv()
	if err != nil {
		return err
	}
	records, err := fromManager(dirs, log)
	if err != nil {
		return err
	}
	if len(records) == 0 && os.Getenv(wire.EnvResume) == "" && os.Getenv(wire.EnvTrial) == "" { // else sessions depend on it
		if err := dirs.CheckParents(); err != nil {
			return err
		}
	}
	claim, err := claimPlace(dirs)
	if err != nil {
		return err
	}
	if claim != nil {
		fd, err := session.Descriptor(claim)
		if err != nil {
			return err
		}
		records = append(records, keeper.Record{ID: wire.OwnID, FDs: []int{fd}})
	}
	if os.Getenv("NOTIFY_SOCKET") != "" {
		if err := mark.SetManaged(dirs.Runtime, true); err != nil {
			return err
		}
	}
	if err := machine.Reap(); err != nil {
		log.Error().Err(err).Msg("how children end that lose their supervisor will not be known")
	}
	if err := mark.Mark(dirs.Runtime); err != nil {
		log.Error().Err(err).Msg("nobody sees that this is the keeper")
	}
	if err := pty.Protect(); err != nil {
		log.Warn().Err(err).Msg("the kernel may end this process before sessions when memory runs out")
	}
	_ = machine.Name("keeper") // for people
	code := keeper.Run(keeper.Config{
		Argv: argv, Records: records, Deaths: cfg.CrashLimit, Backoff: cfg.CrashPause,
		Log: func(line string) { log.Info().Msg(line) },
		Held: func(deaths int) {
			if err := mark.WriteHeld(dirs.Runtime, deaths); err != nil {
				log.Error().Err(err).Msg("nobody sees that nothing is started any more")
			}
		},
		Chosen:     func() string { return mark.Chosen(dirs.Runtime) },
		StartTime:  cfg.StartTimeout,
		MemoryFile: machine.MemoryFile,
	})
	if code == 0 {
		_ = mark.SetManaged(dirs.Runtime, false) // else a proxy waits for some seconds
	}
	runtime.KeepAlive(claim)
	closeLog()
	syscall.Exit(code)
	return nil
}

// claimTime is how long a keeper that is about to end is waited for.
const claimTime = time.Second

// claimPlace returns the file of the lock that says that this directory has a keeper,
// or an error if it has another one. Nothing is started before. A keeper that goes on after another program
// has the lock from that one, unless it was of a release that had none.
func claimPlace(dirs config.Dirs) (*os.File, error) {
	if os.Getenv(wire.EnvTrial) != "" {
		return nil, nil
	}
	wait := claimTime
	if os.Getenv(wire.EnvResume) != "" {
		wait = 0
	}
	f, err := mark.Claim(dirs.Runtime, wait)
	var inUse *socket.InUseError
	if wait == 0 && errors.As(err, &inUse) {
		return nil, nil
	}
	return f, err
}

// takeTime is how long a supervisor may take to become the keeper.
const takeTime = 10 * time.Second

// fromManager returns what a service manager has held for us. Where terminals are
// held already, by a supervisor that has taken its keeper's place, that one becomes
// the service's main process, and we end.
func fromManager(dirs config.Dirs, log zerolog.Logger) (records []keeper.Record, err error) {
	if os.Getenv(wire.EnvResume) != "" || os.Getenv(wire.EnvTrial) != "" || !fdstore.Managed() {
		return nil, nil
	}
	for _, r := range fdstore.Inherited() {
		records = append(records, keeper.Record(r))
	}
	for limit := time.Now().Add(takeTime); ; time.Sleep(10 * time.Millisecond) {
		held, err := socket.Locked(dirs.Socket(config.SupervisorSocket))
		if err != nil || !held {
			return records, err
		}
		pid, err := mark.PID(dirs.Runtime)
		if err != nil {
			return nil, err
		}
		if pid != 0 {
			log.Info().Int("keeper_pid", pid).Msg("terminals are held already; that is the main process now")
			if err := fdstore.Main(pid); err != nil {
				return nil, err
			}
			syscall.Exit(0)
		}
		if time.Now().After(limit) {
			return nil, &socket.InUseError{Path: dirs.Socket(config.SupervisorSocket)}
		}
	}
}

// supervisorArgv starts the supervisor proper as this keeper was started.
func supervisorArgv() ([]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return append([]string{exe, "run"}, os.Args[1:]...), nil
}
