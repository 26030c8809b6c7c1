//go:build linux || darwin

package keeper

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A keeper has one mutex for all it knows.
//
//	loop    signals, timers, the children's ends: starts and buries supervisors
//	tell    one for each supervisor: what is written to it; starts listen
//	listen  what it asks for: alone changes records
type keeper struct {
	cfg      Config
	chld     chan os.Signal
	sigs     chan os.Signal
	dropped  chan os.Signal // never read: package signal drops what does not fit
	logger   *logger
	mu       sync.Mutex
	changed  *sync.Cond // of a child, for those who wait
	holdings            // under mu, like all below

	child  *child // nil: none runs
	trials map[int]*syscall.WaitStatus
	starts int
	last   string
	status uint32
	lived  bool // a supervisor was ready once
	good   int  // descriptor of the last program that was; 0: none

	failures int // of the configured program in a row, before it was ready
	distrust bool
	deaths   []time.Time
	row      int
	again    <-chan time.Time
	holding  bool
	pending  syscall.Signal // to be passed on when a supervisor is ready
	over     bool
	code     int
}

// Run keeps a supervisor running and returns its exit code when it has ended in
// order, or refused to start at all. It takes the process over: children, signals
// and the runtime's settings. It returns 69 if the program cannot be started.
func Run(cfg Config) int {
	// It holds little and does one thing at a time; memory counts, time does not.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	k := &keeper{cfg: cfg.withDefaults(), holdings: newHoldings(), trials: map[int]*syscall.WaitStatus{},
		chld: make(chan os.Signal, 1), sigs: make(chan os.Signal, 16), dropped: make(chan os.Signal, 1)}
	k.changed = sync.NewCond(&k.mu)
	if fd := inherited(envTrial); fd > 0 {
		return try(fd)
	}
	k.notify()
	k.logger = newLogger(k.cfg.Log)
	defer k.logger.flush()
	if err := becomeReaper(); err != nil {
		k.log("how orphans end will not be known: %v", err)
	}
	if fd := inherited(envResume); fd > 0 {
		if err := k.resume(fd); err != nil {
			k.log("cannot go on: %v", err)
			return exitSoftware
		}
		k.reap() // what ended during the exec
	} else {
		k.start()
	}
	return k.loop()
}

// notify catches what would end us. What is not ours is dropped and not ignored,
// as a supervisor's shells would inherit that.
func (k *keeper) notify() {
	signal.Notify(k.chld, unix.SIGCHLD)
	signal.Notify(k.sigs, caught...)
	signal.Notify(k.dropped, dropped...)
}

var (
	caught  = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP}
	dropped = []os.Signal{unix.SIGPIPE, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM}
)

func (k *keeper) loop() int {
	for !k.over {
		k.guard(func() {
			select {
			case <-k.chld:
				k.reap()
			case s := <-k.sigs:
				k.signal(s.(syscall.Signal))
			case <-k.again:
				k.start()
			}
		})
	}
	return k.code
}

// guard lives on: a mistake of ours is no reason to lose what is held.
func (k *keeper) guard(do func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the keeper's mistake: %v", p)
			k.log("%v\n%s", err, debug.Stack())
		}
	}()
	do()
	return nil
}

// signal passes the end on. A supervisor that is not ready may not have its
// handlers yet and would die of it, so it is told later if there is something to
// lose.
func (k *keeper) signal(s syscall.Signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.child
	switch {
	case s == unix.SIGHUP:
		if k.holding {
			k.failures, k.distrust, k.deaths, k.row = 0, false, nil, 0
			k.startLocked()
		}
	case c != nil && (c.ready || len(k.records) == 0):
		c.pass(s)
	case k.holding && s == unix.SIGTERM:
		k.log("told to end: %d records are let go", len(k.records))
		k.end(128 + int(s))
	default:
		k.pending = s
		k.log("%v is passed on when a supervisor is ready", s)
	}
}

func (k *keeper) end(code int) { k.over, k.code = true, code }

// reap collects all that ended.
func (k *keeper) reap() {
	for {
		pid, status := k.collect()
		if pid <= 0 {
			return
		}
		if c := k.child; c != nil && c.pid == pid {
			k.bury(c, status)
		}
	}
}

// collect holds the mutex over wait and what comes of it: an exec between them
// would lose an exit.
func (k *keeper) collect() (int, syscall.WaitStatus) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, unix.WNOHANG, nil)
	trial, c := k.trials[pid], k.child
	switch {
	case err != nil || pid <= 0:
		return 0, 0
	case c != nil && c.pid == pid:
		c.dead = true
		c.conn.Drain()
	case trial != nil:
		*trial = status
		delete(k.trials, pid)
	default:
		k.ended(pid, uint32(status), time.Now())
		if c != nil {
			c.untold = append(c.untold, pid)
			if len(c.untold) > 2*maxExits { // it has not read for long; better twice than never
				c.untold = k.exitPIDs()
			}
		}
	}
	k.changed.Broadcast()
	return pid, status
}

func (k *keeper) log(format string, args ...any) { k.logger.print(fmt.Sprintf(format, args...)) }
