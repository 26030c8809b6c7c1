//go:build linux || darwin

// Package keeper is the parent process of the supervisor. It holds duplicates of
// the descriptors that must not be lost, starts the supervisor again when it has
// died, and collects the exit status of the children of a dead supervisor. The
// keeper itself is replaced very rarely, so it does as little as possible.
//
// Invariant: the keeper releases a vault entry only because a supervisor asked for
// it, or because the keeper ends as requested. It never ends a supervisor that
// serves, and a supervisor that does not read costs it nothing. It may end a
// supervisor that has never served, because that loses no session.
//
// Not here: the content of an entry, the messages (package message), the supervisor's
// side and the successor of a keeper that has died (package vault). README.md
// describes how the programs of keeper and supervisor replace each other.
package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/supervisor/internal/keeper/message"
)

// Config tells Run which program to keep running. Fields with a default may be zero;
// Entries and Chosen may be nil.
type Config struct {
	Argv       []string                            // the supervisor's program, by path, and its arguments
	Log        func(line string)                   // must not block
	Held       func(deaths int)                    // called when the next supervisor is started after HeldPause or at SIGHUP; must not block
	Chosen     func() string                       // called at SIGHUP: the path of the program to start next, or ""
	MemoryFile func(name string) (*os.File, error) // as the function of package machine
	Entries    []Entry                             // entries to hold from the first start on; an inherited entry is kept instead
	Backoff    time.Duration                       // pause before the second start in a minute, doubled for each further one; default 100 ms
	Deaths     int                                 // after this many deaths in a minute the pause is HeldPause; default 5
	HeldPause  time.Duration                       // until a supervisor serves again; default 1 minute

	// InterruptTime is how long after a first SIGINT a second one ends the keeper, if it
	// holds entries and waits for HeldPause; default 5 s.
	InterruptTime time.Duration

	// StartTime is how long a supervisor may make no progress before it serves: since its
	// start, its exec of another program, or its last message. Then the keeper ends it.
	// The time doubles with each supervisor that is ended in a row, at most 16 times, so
	// that the default of 10 s gives minutes to the slowest machine.
	StartTime time.Duration
	// GoodTime is how long a program must serve until the keeper returns to it when
	// another program fails; default 10 s.
	GoodTime time.Duration
}

// A keeper does one thing at a time: run calls turn after turn.
type keeper struct {
	state
	cfg          Config
	signals      chan os.Signal
	wake         *os.File // yields one byte per signal, so that poll returns
	failureCount int      // starts since a supervisor was last ready
	lateCount    int      // supervisors ended since then because they did not serve
	shortages    int      // starts in a row for which the system had no room
	deaths       []time.Time
	restartAt    time.Time      // when the next supervisor is started; zero while one runs
	isHeld       bool           // too many supervisors have died, and none has been ready since
	stopSignal   syscall.Signal // the request to end: SIGTERM, a SIGINT that no ready supervisor has received yet, or 0
	exitCode     int            // the result of Run; -1 while the keeper runs
	mustEnd      atomic.Bool    // a request to end has arrived that no turn has handled yet

	interruptedAt time.Time // when the last SIGINT came during HeldPause
}

const (
	ticksPerLimit = 10              // StartTime and GoodTime are counted in turns of at most a tenth
	maxNewDeaths  = 2               // deaths of a program that never served for GoodTime, before it is given up
	trialTime     = 5 * time.Second // for a new keeper program to load the state that it would take over
	// maxShortagePause is the longest pause between two attempts to start a program for which the system has no room.
	maxShortagePause = 5 * time.Second
	exitUnavailable  = 69 // EX_UNAVAILABLE of sysexits.h: no supervisor can be started or resumed
)

// caught lists the signals that the keeper passes on, and those that would end it by
// default. Ignoring the latter is no alternative, because shells inherit ignored signals.
var caught = []os.Signal{
	unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
}

// Run keeps a supervisor running. It returns the supervisor's exit code after the
// supervisor ended as requested, or 69. Run controls the whole process: children,
// signals and settings of the Go runtime. On Linux the process must be a subreaper;
// otherwise the exit status of children of a dead supervisor is unknown.
func Run(cfg Config) int {
	runtime.GOMAXPROCS(1) // memory matters here, speed does not
	debug.SetGCPercent(20)
	cfg.Backoff, cfg.Deaths = cmp.Or(cfg.Backoff, 100*time.Millisecond), cmp.Or(cfg.Deaths, 5)
	cfg.StartTime, cfg.GoodTime = cmp.Or(cfg.StartTime, 10*time.Second), cmp.Or(cfg.GoodTime, 10*time.Second)
	cfg.InterruptTime, cfg.HeldPause = cmp.Or(cfg.InterruptTime, 5*time.Second), cmp.Or(cfg.HeldPause, time.Minute)
	k := &keeper{cfg: cfg, signals: make(chan os.Signal, 64), exitCode: -1}
	k.Version, k.Entries, k.Good = message.Version, map[string]*Entry{}, -1
	if err := k.init(takeDescriptor(message.EnvTrial), takeDescriptor(message.EnvResume)); err != nil {
		k.log("keeper cannot start or resume: %v", err)
		return exitUnavailable
	}
	for k.exitCode < 0 {
		if err := k.recoverPanic(k.turn); err != nil {
			time.Sleep(100 * time.Millisecond) // the cause may persist; do not spin
		}
	}
	return k.exitCode
}

// takeDescriptor removes a descriptor's number from the environment and returns it, or 0.
func takeDescriptor(name string) int {
	fd, _ := strconv.Atoi(os.Getenv(name)) // 0 if there is none
	_ = os.Unsetenv(name)
	return fd
}

// init starts a supervisor (trial and resume are 0), continues the work of another
// program (resume is its manifest), or only tests whether it could (trial).
func (k *keeper) init(trial, resume int) error {
	if trial > 0 {
		k.exitCode = message.ExitTried
		return k.load(trial)
	}
	if err := k.catchSignals(); err != nil {
		return err
	}
	if resume > 0 {
		if err := k.load(resume); err != nil {
			return err
		}
	}
	for _, e := range k.cfg.Entries {
		if err := k.putEntry(&e); err != nil && k.Entries[e.ID] == nil {
			k.log("vault entry %.50q not loaded: %v", e.ID, err)
		}
	}
	k.setDescriptorFlags(k.descriptors(), unix.FD_CLOEXEC)
	if resume > 0 {
		return k.resume()
	}
	k.start()
	return nil
}

// catchSignals makes each signal a byte in the pipe that turn polls.
func (k *keeper) catchSignals() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	k.wake = r
	signal.Notify(k.signals, append(caught, unix.SIGCHLD)...)
	go func() {
		for s := range k.signals {
			k.mustEnd.CompareAndSwap(false, s == unix.SIGTERM || s == unix.SIGINT)
			if _, err := w.Write([]byte{byte(s.(syscall.Signal))}); err != nil {
				k.log("signal %v not handled: %v", s, err)
			}
		}
	}()
	return nil
}

// turn waits for one event and handles it. The keeper reads from a supervisor only
// after it has sent everything to it. So a supervisor that does not read delays only
// itself, there is one reply at a time, and entries do not change while they are sent.
func (k *keeper) turn() error {
	c, wait, sending := k.Supervisor, -1, false
	ready := []unix.PollFd{{Fd: int32(k.wake.Fd()), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
	if c != nil {
		ready[1].Fd = int32(c.Socket)
		if sending = k.queueNext(c); sending {
			ready[1].Events = unix.POLLOUT
		}
		if limit := k.timeLimit(c); limit > 0 {
			wait = int((limit / ticksPerLimit).Milliseconds()) + 1
			defer k.countTurn(c, time.Now(), limit)
		}
	} else {
		wait = int(max(0, time.Until(k.restartAt)).Milliseconds())
	}
	n, err := unix.Poll(ready, wait)
	if errors.Is(err, unix.EINTR) { // the signal's byte is in the pipe, so the next turn handles it
		return nil
	}
	if err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	if n == 0 && c == nil {
		k.start()
	}
	if ready[1].Revents != 0 && sending {
		c.send()
	} else if ready[1].Revents != 0 {
		k.receive(c)
	}
	if ready[0].Revents != 0 {
		s := make([]byte, 1)
		if _, err := k.wake.Read(s); err != nil {
			return fmt.Errorf("read a signal: %w", err)
		}
		k.handleSignal(syscall.Signal(s[0]))
	}
	return nil
}

// recoverPanic turns a panic of do into an error, because a defect in the keeper must
// not lose the entries that it holds.
func (k *keeper) recoverPanic(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in the keeper: %v", p)
			k.log("%v\n%s", err, debug.Stack())
		}
	}()
	return do()
}

// handleSignal handles a signal that catchSignals has received.
func (k *keeper) handleSignal(s syscall.Signal) {
	switch {
	case s == unix.SIGCHLD:
		k.reap()
	case s == unix.SIGHUP:
		k.loadChosen()
		k.isHeld, k.deaths = false, nil // also if a supervisor starts that is about to die
		if k.Supervisor == nil {
			k.failureCount = 0
			k.start()
		}
	case s == unix.SIGTERM || s == unix.SIGINT:
		k.mustEnd.Store(false)
		k.log("keeper received %v", s)
		k.requestEnd(s)
	}
}

// requestEnd passes a request to end on to the supervisor. If the keeper holds entries,
// it does so only if the supervisor is ready, because a supervisor that is still
// starting may not have its signal handlers yet. handleReady sends the signal later.
// An interrupt that a ready supervisor has received is forgotten: the supervisor may
// continue, because only a second interrupt ends sessions, and a crash loop at a later
// time must not end them either.
func (k *keeper) requestEnd(s syscall.Signal) {
	switch c := k.Supervisor; {
	case c == nil && k.isHeld: // the next supervisor is started too late
		if s == unix.SIGINT && !k.holdsNoSession() && time.Since(k.interruptedAt) > k.cfg.InterruptTime {
			k.interruptedAt = time.Now()
			k.log("interrupt again within %v to end the sessions; %d vault entries are held", k.cfg.InterruptTime, len(k.Entries))
			return
		}
		k.exitCode = 128 + int(s)
	case c != nil && c.Ready && s == unix.SIGINT && !k.holdsNoSession():
		k.kill(c.PID, s)
	default:
		if k.stopSignal != unix.SIGTERM { // an interrupt asks for less
			k.stopSignal = s
		}
		if c != nil && (c.Ready || k.holdsNoSession()) {
			k.kill(c.PID, s)
		}
	}
}

// reap collects the exit status of every child that has ended.
func (k *keeper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch c := k.Supervisor; {
		case err != nil || pid <= 0:
			return
		case c != nil && pid == c.PID:
			k.handleExit(c, status)
		default:
			k.recordExit(pid, uint32(status))
		}
	}
}

// kill sends a signal. A failure means that the process has ended, which reap handles.
func (k *keeper) kill(pid int, s syscall.Signal) {
	if err := unix.Kill(pid, s); err != nil {
		k.log("signal %v not sent to process %d: %v", s, pid, err)
	}
}

func (k *keeper) log(format string, args ...any) { k.cfg.Log(fmt.Sprintf(format, args...)) }
