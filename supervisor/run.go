package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/config"
	"holdfast/shared/keeperstate"
	"holdfast/shared/logging"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/shared/version"
	"holdfast/supervisor/internal/cage"
	"holdfast/supervisor/internal/linkserver"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/recorder"
	"holdfast/supervisor/internal/session"
)

const (
	// gcPercent lets the heap grow by a half until garbage is collected. Output makes almost no garbage; saved screens do, and
	// each is a large part of the memory of its session.
	gcPercent = 50
	// lostTime is how long the start of a supervisor may take longer because of stored sessions.
	lostTime = 2 * time.Second
	// recordingEnd is how long a supervisor that stops waits until the last output is on disk.
	recordingEnd = 5 * time.Second
	// interruptAgain is how long after a first interrupt a second one ends the sessions, also if only the keeper is left.
	interruptAgain = 5 * time.Second
)

// parts are the parts of a supervisor. run makes them in the order of their dependencies.
type parts struct {
	o       *options
	before  *before // inherited from the program before
	cfg     settings
	secret  string
	unread  bool // there is a secret, but it could not be read
	log     zerolog.Logger
	signals chan os.Signal
	self    *self
	ln      *socket.Listener

	stop      context.CancelFunc
	store     *past.Store
	recording *recorder.Recorder
	sessions  *session.Table
	replacer  *replacer
	server    *linkserver.Server
}

// run makes the parts of the supervisor, serves, and takes the parts down in reverse order.
func run(ctx context.Context, o *options) (err error) {
	machine.ReserveThreads() // also on trial, so that an upgrade is refused if there is no room for them
	if done, err := tryOut(); done {
		return err
	}
	fault("run")
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	calm := machine.Hurry()
	p := &parts{o: o}
	if err := p.inherit(); err != nil {
		p.logEarly(err)
		return err
	}
	log, closeLog, err := openLog(o, p.cfg, "supervisor", p.before.hasSessions())
	if err != nil {
		return err
	}
	defer closeLog()
	defer func() {
		if err != nil {
			log.Error().Err(err).Msg(cannotServe)
		}
	}()
	p.log = log
	if err := p.listen(); err != nil {
		return err
	}
	ctx, p.stop = context.WithCancel(ctx)
	defer p.stop()
	// Only a requested stop cancels ctx, which removes the socket and releases its lock. After a
	// panic or a failure, the keeper holds both for the next supervisor.
	defer func() { _ = p.ln.Release() }()
	p.makeTable()
	p.makeServer()
	adopted := p.restore(calm)
	p.watch(ctx)
	p.announce(adopted)
	return p.serve(ctx)
}

// cannotServe is the message of the log with the error that run returns.
const cannotServe = "supervisor cannot serve"

// logEarly logs the error of a supervisor that does not know its settings, so that its log is not open yet. With --background,
// the text that main writes to standard error is lost. The log is not made in a directory that other users can write to.
func (p *parts) logEarly(err error) {
	state := p.cfg.dirs.State
	if !p.o.background || state == "" || socket.CheckDir(state) != nil {
		return
	}
	log, closer, failed := logging.New(logging.Options{Path: logPath(state), Process: "supervisor"})
	if failed != nil {
		return // main writes err to standard error in any case
	}
	log.Error().Err(err).Msg(cannotServe)
	_ = closer.Close()
}

// inherit takes over everything that the program before has left, and loads the settings. If sessions depend on this program and
// no settings can be used, it waits until they can, because its successors would end in the same way until the keeper starts only one each minute.
func (p *parts) inherit() (err error) {
	if p.before, err = inherit(); err != nil {
		return err
	}
	if err := pty.Seal(); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	if err := os.Chdir("/"); err != nil { // so that no directory stays in use
		return err
	}
	if p.cfg, err = loadSettings(p.o, p.before.hasSessions()); err == nil || !p.before.hasSessions() {
		return err
	}
	p.logEarly(err)
	for alive := p.before.progress(); err != nil; p.cfg, err = loadSettings(p.o, true) {
		time.Sleep(progressInterval)
		alive()
	}
	return nil
}

// listen makes or adopts the socket. It catches signals before, so that a signal is handled as soon as this program serves. If the
// socket came first, a user could see it and end this program without the end of its sessions and with exit code 143.
func (p *parts) listen() (err error) {
	p.cfg.begun(p.log)
	if err := p.readSecret(); err != nil {
		return err
	}
	p.before.findClaim(p.cfg.dirs.Runtime, p.log)
	p.signals = make(chan os.Signal, 4)
	signal.Notify(p.signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	p.self, p.ln, err = p.before.self(p.cfg.dirs.Socket(config.SupervisorSocket), p.log)
	return err
}

// readSecret reads the secret that each proxy must know. If it cannot be read and sessions depend on this program, the
// program serves nevertheless, because its successors would end in the same way until the keeper starts only one each minute. It then refuses
// every proxy until the secret can be read.
func (p *parts) readSecret() (err error) {
	if p.secret, err = p.cfg.Secret(); err == nil || !p.before.hasSessions() {
		return err
	}
	p.unread = true
	p.log.Error().Err(err).Msg("secret not read; the supervisor holds its sessions, and refuses every proxy until the secret can be read")
	return nil
}

// makeTable makes the table of the sessions, and their store and cages.
func (p *parts) makeTable() {
	cfg, log := p.cfg, p.log
	if err := pty.Protect(); err != nil {
		log.Warn().Err(err).Msg("OOM score not lowered; the kernel may end this process before sessions if memory runs out")
	}
	cages := cage.Open(cage.Options{Setting: cfg.Cage, Keeper: p.before.keeperPID(), Managed: os.Getenv("NOTIFY_SOCKET") != "", Log: log})
	_, files, err := machine.Files()
	if err != nil {
		log.Warn().Err(err).Msg("limit of open files not read")
	}
	presence, err := p.before.showPresence(cfg.dirs, p.self.Instance)
	if err != nil {
		log.Warn().Err(err).Msg("presence not shown; another supervisor with the same state directory takes these sessions for lost")
	}
	p.store = past.New(cfg.dirs.Recordings(), durableKey(cfg.Config))
	p.recording = recorder.New(recorder.Config{
		Store: p.store, Sync: cfg.DurableSync, Log: log,
		Budgets: past.Policy{PerLife: int64(cfg.DurableSession), Total: int64(cfg.DurableTotal), Age: cfg.DurableAge},
	})
	p.sessions = session.NewTable(session.Config{
		Recorder: p.recording, Durable: cfg.Durable, Supervisor: p.self.Instance, IsRunning: presence.isRunning, SecretEnv: cfg.SecretEnv, Mask: cfg.Mask,
		Files:     int(min(files, math.MaxInt32)),
		Program:   version.String(),
		RingBytes: cfg.RingBytes, ScrollbackLines: cfg.ScrollbackLines,
		ExitKeep: cfg.ExitKeep, ExitRecords: cfg.ExitRecords, Grace: cfg.Grace,
		MaxSessions: cfg.MaxSessions, OriginatorSessions: cfg.OriginatorMax, SpawnBurst: 8 * cfg.SpawnRate, SpawnRate: cfg.SpawnRate,
		Env: inherited(p.o, cfg.dirs), Cages: cages, Vault: p.before.sessionVault(log), ReportDir: cfg.dirs.State, Published: p.self.published, Log: log,
	})
	p.replacer = &replacer{before: p.before, self: p.self, sessions: p.sessions, recording: p.recording, cages: cages, log: log, diskTime: diskTime, isWaiting: machine.WaitsForDisk}
}

// durableKey begins to read the key that encrypts the recordings. It returns nil if there is none.
func durableKey(cfg config.Config) *past.Key {
	if cfg.DurableKey == "" {
		return nil
	}
	return past.NewKey(cfg.ReadDurableKey)
}

func (p *parts) makeServer() {
	cfg := linkserver.Config{
		Sessions: p.sessions, Secret: p.secret, Stop: p.stop, Upgrader: p.replacer,
		Instance: p.self.Instance, Started: p.self.Started, Status: p.replacer.status, Log: p.log,
		Reading: p.self.reading, NoReads: p.self.noReads(p.before.crashed),
	}
	if p.unread {
		cfg.ReadSecret = p.cfg.Secret
	}
	p.server = linkserver.New(cfg)
	p.replacer.server = p.server
	_ = machine.Name("supervisor") // the name that ps shows
}

// restore adopts the sessions of the program before, and begins to restore their screens, and the sessions that were lost with
// the machine. It returns the number of adopted sessions. calm is called when the screens are restored.
func (p *parts) restore(calm func()) (adopted int) {
	heritage := p.before.heritage(p.self)
	adopted = p.sessions.Adopt(heritage)
	fault("adopted")
	if p.before.own {
		p.self.Upgrades++ // saved when this program is ready, because a program that dies earlier is no upgrade
	}
	go p.sessions.Restore(calm)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		p.sessions.AddLost(p.store, heritage.Instances())
	}()
	if p.before.isFresh() { // no session waits, and the first request should find the lost ones
		select {
		case <-lost:
		case <-time.After(min(lostTime, p.cfg.StartTimeout/4)):
			p.log.Warn().Msg("stored sessions are still being read; they are listed later")
		}
	}
	return adopted
}

// watch starts the goroutines that end or mend the supervisor. They end with ctx.
func (p *parts) watch(ctx context.Context) {
	go obey(ctx, p.signals, p.sessions, p.stop, p.log)
	go p.replacer.watchKeeper(ctx)
	go endIfEmpty(ctx, p.cfg.EmptyTimeout, func() bool {
		return p.server.Linked() == 0 && !keeperstate.IsManaged(p.cfg.dirs.Runtime) // a service manager would start the supervisor again
	}, func() bool {
		closed := p.sessions.CloseIfIdle(true)
		if closed {
			p.log.Info().Dur("after", p.cfg.EmptyTimeout).Msg("supervisor ends: it had no session, no exit record and no proxy")
			p.stop()
		}
		return closed
	})
	go keeperstate.KeepRenewed(ctx, p.cfg.dirs.Runtime)
	go p.ln.Watch(ctx, func(rebound bool, err error) {
		p.log.Warn().Err(err).Bool("rebound", rebound).Str(logging.Path, p.ln.Path()).Msg("the path of the socket was gone")
		if rebound {
			p.self.save(p.log)
		}
	})
	context.AfterFunc(ctx, func() { _ = p.ln.Close() }) // makes Serve return
}

// announce logs that the supervisor serves, and notifies the keeper.
func (p *parts) announce(adopted int) {
	serves := p.log.Info().Int(logging.PID, os.Getpid()).Str(logging.Version, version.String()).Str(logging.Path, p.ln.Path()).
		Int("sessions", adopted).Int("upgrades", p.self.Upgrades)
	if p.before.own {
		serves = serves.Dur(logging.Took, time.Since(p.before.at))
	}
	serves.Msg("supervisor serves")
	fault("serves")
	p.before.ready(p.log) // must be last, because from here on the keeper does not end this program any more, and forwards signals to it
	if p.before.own {
		p.self.save(p.log)
	}
	keeperstate.ClearHeld(p.cfg.dirs.Runtime)
	fault("ready")
}

// serve serves proxies until ctx is done, and then waits for the recordings.
func (p *parts) serve(ctx context.Context) error {
	err := p.server.Serve(ctx, p.ln)
	if unfinished := p.recording.Close(recordingEnd); unfinished != nil {
		p.log.Warn().Err(unfinished).Msg("recordings not finished")
	}
	if err == nil {
		p.before.quit(p.log)
	}
	p.log.Info().Msg("supervisor stops")
	return err
}

// obey ends all sessions and then the supervisor at SIGTERM, and at the second SIGINT if
// sessions are running. It ignores SIGHUP, which concerns the process that started this one and
// not the sessions.
func obey(ctx context.Context, signals <-chan os.Signal, sessions *session.Table, stop func(), log zerolog.Logger) {
	var last time.Time
	for {
		var sig os.Signal
		select {
		case sig = <-signals:
		case <-ctx.Done():
			return
		}
		if sig == syscall.SIGHUP {
			continue
		}
		live := sessions.Live()
		if sig == syscall.SIGINT && live > 0 && time.Since(last) > interruptAgain {
			last = time.Now()
			log.Warn().Int("sessions", live).Msg("sessions are running; interrupt again to end them")
			continue
		}
		log.Info().Stringer(logging.Signal, sig.(syscall.Signal)).Int("sessions", live).Msg("supervisor ends every session")
		asker := protocol.Asker{By: "supervisor, by " + pty.SignalName(sig.(syscall.Signal))}
		_ = sessions.Shutdown(ctx, asker) // fails only if ctx is done, because another goroutine has stopped the supervisor
		stop()
		return
	}
}
