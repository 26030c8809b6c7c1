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
	"holdfast/shared/keeperstate"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/supervisor/internal/fdstore"
	"holdfast/supervisor/internal/keeper"
	"holdfast/supervisor/internal/keeper/message"
	"holdfast/supervisor/internal/pty"
)

// runKeeper runs the keeper, which runs this program again with the command run, as the
// supervisor. It does not return unless it fails.
func runKeeper(o *options) error {
	machine.ReserveThreads()
	if err := pty.Seal(); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := checkPlace(o); err != nil {
		return err
	}
	isDependedOn := inheritsSessions() // read here, because keeper.Run removes the variables
	cfg, err := loadSettings(o, isDependedOn)
	if err != nil && !isDependedOn {
		return err
	}
	dirs := cfg.dirs
	if err != nil { // the keeper holds sessions, and needs only the defaults for that
		cfg.Config = config.Defaults()
	}
	log, closeLog, err := openLog(o, cfg, "keeper", isDependedOn)
	if err != nil {
		return err
	}
	if cfg.wrong != nil {
		log.Error().Err(cfg.wrong).Msg("settings cannot be used; the keeper continues with those of its last start, or the defaults")
	}
	argv, err := supervisorArgv()
	if err != nil {
		return err
	}
	entries, claim, err := firstEntries(dirs, log)
	if err != nil {
		if !errors.As(err, new(*socket.InUseError)) {
			log.Error().Err(err).Msg("keeper not started") // a proxy that has started it does not see its standard error
		}
		return err
	}
	if !isDependedOn {
		if err := awaitSeated(dirs, seatTime); err != nil {
			return err
		}
	}
	if os.Getenv(message.EnvTrial) != "" {
		fault("trial")
	} else if err := writeNotes(dirs, log, isDependedOn); err != nil {
		return err
	}
	if err := machine.Reap(); err != nil {
		log.Error().Err(err).Msg("this process could not become a subreaper; exit codes of children whose supervisor dies will be unknown")
	}
	if err := pty.Protect(); err != nil {
		log.Warn().Err(err).Msg("OOM score not lowered; the kernel may end this process before sessions if memory runs out")
	}
	_ = machine.Name("keeper") // the name that ps shows; its failure has no other effect
	code := keeper.Run(keeper.Config{
		Argv: argv, Entries: entries, Deaths: cfg.CrashLimit, Backoff: cfg.CrashPause,
		Log: func(line string) { log.Info().Msg(line) },
		Held: func(deaths int) {
			if err := keeperstate.WriteHeld(dirs.Runtime, deaths); err != nil {
				log.Error().Err(err).Msg("note of the crash loop not written; other processes do not see that the keeper starts no supervisor")
			}
		},
		Chosen:     func() string { return keeperstate.Chosen(dirs.Runtime) },
		StartTime:  cfg.StartTimeout,
		MemoryFile: machine.MemoryFile,

		InterruptTime: interruptAgain,
	})
	if code == 0 {
		_ = keeperstate.SetManaged(dirs.Runtime, false) // if this fails, a proxy waits some seconds for the service manager
	}
	runtime.KeepAlive(claim)
	closeLog()
	syscall.Exit(code)
	return nil
}

// firstEntries returns the vault entries with which the keeper begins. One of them has the lock claim, which the caller must
// keep open.
func firstEntries(dirs config.Dirs, log zerolog.Logger) (entries []keeper.Entry, claim *os.File, err error) {
	if entries, err = fromManager(dirs, log); err != nil {
		return nil, nil, err
	}
	claim, err = claimPlace(dirs)
	var fd int
	if claim != nil && err == nil {
		fd, err = machine.Descriptor(claim)
	}
	if err != nil && os.Getenv(message.EnvResume) != "" {
		log.Error().Err(err).Msg("keeper lock not taken; another keeper could start for the same directory")
		return entries, claim, nil
	}
	if claim == nil || err != nil {
		return entries, nil, err
	}
	return append(entries, keeper.Entry{ID: message.OwnID, FDs: []int{fd}}), claim, nil
}

// writeNotes makes the notes by which other processes find this keeper.
func writeNotes(dirs config.Dirs, log zerolog.Logger, isDependedOn bool) error {
	if os.Getenv("NOTIFY_SOCKET") != "" {
		err := keeperstate.SetManaged(dirs.Runtime, true)
		if err != nil && !isDependedOn {
			return err
		}
		if err != nil {
			log.Error().Err(err).Msg("note of the service manager not written; a proxy may start a supervisor that the service manager would start")
		}
	}
	if err := keeperstate.LockPID(dirs.Runtime); err != nil {
		log.Error().Err(err).Msg("keeper note not written; other processes cannot find the keeper")
	}
	return nil
}

// inheritsSessions reports whether this keeper receives sessions from another program, or is on
// trial for that. They would end with this process if it failed, so a file that it cannot read
// or write must not make it fail.
func inheritsSessions() bool {
	return os.Getenv(message.EnvResume) != "" || os.Getenv(message.EnvTrial) != "" || fdstore.Managed() && os.Getenv("LISTEN_FDS") != ""
}

// checkPlace returns an error if another user could replace one of the directories. It must be
// called before a file is made or opened there, because that user could have put a link to
// one of this user's files in its place. A keeper that inherits sessions is never refused,
// because they depend on it.
func checkPlace(o *options) error {
	if inheritsSessions() {
		return nil
	}
	dirs, err := config.Resolve(o.dir, os.Getenv)
	if err != nil {
		return err
	}
	return dirs.CheckParents()
}

// claimTime is how long to wait for an old keeper that is about to end.
const claimTime = time.Second

// claimPlace returns the locked file that marks this directory's keeper, or an error if the
// directory has another keeper. A keeper must have the lock before it starts a supervisor. A
// keeper that resumes inherits the lock as a vault entry, unless its predecessor was of
// a release without the lock.
func claimPlace(dirs config.Dirs) (*os.File, error) {
	if os.Getenv(message.EnvTrial) != "" {
		return nil, nil
	}
	wait := claimTime
	if os.Getenv(message.EnvResume) != "" {
		wait = 0
	}
	f, err := keeperstate.Claim(dirs.Runtime, wait)
	var inUse *socket.InUseError
	if wait == 0 && errors.As(err, &inUse) {
		return nil, nil
	}
	return f, err
}

// becomeTime is how long a supervisor may take to become the keeper.
const becomeTime = 10 * time.Second

// fromManager returns the vault entries from the service manager's store. If another process
// holds the terminals already, because a supervisor has become the keeper, that
// process is declared the service's main process, and this one exits.
func fromManager(dirs config.Dirs, log zerolog.Logger) (entries []keeper.Entry, err error) {
	if os.Getenv(message.EnvResume) != "" || os.Getenv(message.EnvTrial) != "" || !fdstore.Managed() {
		return nil, nil
	}
	entries = fdstore.Inherited()
	for limit := time.Now().Add(becomeTime); ; time.Sleep(10 * time.Millisecond) {
		held, err := socket.Locked(dirs.Socket(config.SupervisorSocket))
		if err != nil || !held {
			return entries, err
		}
		pid, err := keeperstate.PID(dirs.Runtime)
		if err != nil {
			return nil, err
		}
		if pid != 0 {
			log.Info().Int("keeper_pid", pid).Msg("another keeper holds the terminals; it is now the main process of the service")
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

// supervisorArgv returns the command line of the supervisor: this program's own, with the
// command run. If the path of the program is not known, a keeper that inherits sessions uses the
// path by which it was executed.
func supervisorArgv() ([]string, error) {
	exe, err := os.Executable()
	if err != nil && inheritsSessions() {
		exe, err = os.Args[0], nil
	}
	if err != nil {
		return nil, err
	}
	return append([]string{exe, "run"}, os.Args[1:]...), nil
}
