package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/shared/config"
	"holdfast/shared/keeperstate"
	linkconn "holdfast/shared/link"
	"holdfast/shared/plain"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// answerTime is how long a supervisor that was started may take until its first answer.
const answerTime = 5 * time.Second

// An upgrader is the command `supervisor --upgrade`.
type upgrader struct {
	dirs   config.Dirs
	secret string
	exe    string
	began  time.Time
	limit  time.Duration // until a supervisor answers; one that does not serve is ended after start_timeout, and the next one gets as much time
}

// askUpgrade requests that the running supervisor executes this program. If no supervisor
// answers, and a keeper lives, it requests that the keeper starts this program.
func askUpgrade(ctx context.Context, o *options, dryRun, keeper bool) error {
	dirs, cfg, err := find(o)
	if err != nil {
		return err
	}
	u := upgrader{dirs: dirs, began: time.Now(), limit: 2*cfg.StartTimeout + answerTime}
	if u.secret, err = cfg.Secret(); err != nil {
		return err
	}
	if u.exe, err = os.Executable(); err != nil {
		return err
	}
	if held := keeperstate.ReadHeld(dirs.Runtime); held != nil && !dryRun {
		fmt.Printf("%d supervisors died within a minute and only one was started each minute\n", held.Deaths)
		if done, err := u.choose(ctx, held); done || err != nil {
			return err
		}
	}
	conn, err := dial(ctx, dirs, u.secret, "supervisor --upgrade")
	if err != nil && !dryRun && !isRefused(err) {
		if pid, _ := keeperstate.PID(dirs.Runtime); pid != 0 {
			fmt.Printf("no supervisor answers: %v\n", err)
			if done, err := u.choose(ctx, nil); done || err != nil {
				return err
			}
			conn, err = dial(ctx, dirs, u.secret, "supervisor --upgrade")
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	old, err := u.status(ctx)
	if err != nil {
		return err
	}
	reply, err := conn.Call(ctx, link.Upgrade{Program: u.exe, DryRun: dryRun, Keeper: keeper})
	var refused *protocol.Error
	if errors.As(err, &refused) {
		return err
	}
	if tried, ok := reply.(*link.Upgraded); ok && err == nil {
		fmt.Printf("%s could continue %s of %s\n", tried.Version, plain.Count(tried.Sessions, "session"), old.Version)
		return nil
	}
	return u.await(ctx, old)
}

// isRefused reports whether a supervisor answered and refused the connection.
func isRefused(err error) bool {
	code := protocol.CodeOf(err)
	return code != protocol.CodeSupervisorUnreachable && code != protocol.CodeInternal
}

// await returns when a supervisor serves again. It returns an error unless that supervisor is
// this program in the same process, and no supervisor has died meanwhile.
func (u *upgrader) await(ctx context.Context, old *protocol.ProcessStatus) error {
	ctx, cancel := context.WithTimeout(ctx, u.limit)
	defer cancel()
	decided, err := linkconn.AwaitStatus(ctx, u.status, func(now *protocol.ProcessStatus, err error) (bool, error) {
		switch {
		case err != nil:
		case hasDied(old, now):
			return true, protocol.Errorf(protocol.CodeUpgradeRefused, "%s died after it had taken over: %s; %s, process %d, continues with %s",
				version.String(), u.why(now), now.Version, now.PID, plain.Count(now.Sessions, "session"))
		case now.Upgrades == old.Upgrades:
			return true, protocol.Errorf(protocol.CodeUpgradeRefused, "the supervisor did not become %s, and supervisor.log says why; %s, process %d, continues with %s",
				version.String(), now.Version, now.PID, plain.Count(now.Sessions, "session"))
		default:
			fmt.Printf("%s became %s, with %s, pid %d, after %v\n", old.Version, now.Version, plain.Count(now.Sessions, "session"), now.PID,
				time.Since(u.began).Round(time.Millisecond))
			return true, nil
		}
		if held := keeperstate.ReadHeld(u.dirs.Runtime); held != nil {
			return true, protocol.Errorf(protocol.CodeSupervisorUnreachable, "%s died after it had taken over: %v", version.String(), held)
		}
		return false, nil
	})
	if !decided {
		return u.silent(err)
	}
	return err
}

// hasDied reports whether a supervisor has died between two status answers.
func hasDied(old, now *protocol.ProcessStatus) bool {
	if old.Keeper != nil && now.Keeper != nil && old.Keeper.Lost == now.Keeper.Lost {
		return now.Keeper.Starts != old.Keeper.Starts
	}
	return now.PID != old.PID
}

// why returns how the supervisor before the present one has ended, as text.
func (u *upgrader) why(now *protocol.ProcessStatus) string {
	how := "how is not known"
	if now.Keeper != nil && now.Keeper.Last != "" {
		how = now.Keeper.Last
	}
	if last := u.lastWords(); last != "" {
		how += ", " + last
	}
	return how
}

// lastWords returns the panic message from the crash file, if that file was written since this
// command began.
func (u *upgrader) lastWords() (words string) {
	path := filepath.Join(u.dirs.State, "supervisor.crash")
	if info, err := os.Stat(path); err != nil || info.ModTime().Before(u.began) {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			words = strings.TrimSpace(line)
		}
	}
	return fmt.Sprintf("%.200s", words)
}

// silent returns the error for a supervisor that runs and does not answer. The error advises to
// kill the supervisor only if its pid is known.
func (u *upgrader) silent(err error) error {
	path := u.dirs.Socket(config.SupervisorSocket)
	pid := socket.Holder(path)
	if pid == 0 { // kill -9 0 would end the process group of the user's shell or script
		return protocol.Errorf(protocol.CodeSupervisorUnreachable, "the supervisor does not answer: %v; its process id is not known, because %s.lock contains none; free space if the disk is full, and find the process \"supervisor run\" with ps. Its end ends no session, and another is started then",
			err, path)
	}
	return protocol.Errorf(protocol.CodeSupervisorUnreachable, "supervisor %d does not answer: %v; to end it, which ends no session: kill -9 %d. Another is started then", pid, err, pid)
}

// choose requests that the keeper starts this program, and returns when a supervisor serves.
// done reports whether that supervisor is this program.
func (u *upgrader) choose(ctx context.Context, held *keeperstate.Held) (done bool, err error) {
	pid, err := keeperstate.Choose(u.dirs.Runtime, u.exe)
	if err != nil {
		return false, err
	}
	fmt.Printf("process %d, which holds the sessions, will start %s\n", pid, u.exe)
	ctx, cancel := context.WithTimeout(ctx, u.limit)
	defer cancel()
	decided, err := linkconn.AwaitStatus(ctx, u.status, func(now *protocol.ProcessStatus, err error) (bool, error) {
		if err == nil {
			if keeperstate.CancelChoice(u.dirs.Runtime) || now.Version != version.String() {
				return true, nil // the keeper has started the program that it knew before, or the silent supervisor answers now
			}
			fmt.Printf("%s serves with %s, pid %d\n", now.Version, plain.Count(now.Sessions, "session"), now.PID)
			done = true
			return true, nil
		}
		if again := keeperstate.ReadHeld(u.dirs.Runtime); again != nil && (held == nil || *again != *held) {
			return true, protocol.Errorf(protocol.CodeSupervisorUnreachable, "again: %v", again)
		}
		return false, nil
	})
	if !decided {
		return false, u.silent(err)
	}
	return done, err
}

// status asks the supervisor for its status over a link of its own.
func (u *upgrader) status(ctx context.Context) (*protocol.ProcessStatus, error) {
	conn, err := dial(ctx, u.dirs, u.secret, "supervisor --upgrade")
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return conn.Status(ctx)
}
