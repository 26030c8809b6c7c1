package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/shared/keeperstate"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/supervisor/internal/fdstore"
	"holdfast/supervisor/internal/keeper/message"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/reexec"
	"holdfast/supervisor/internal/session"
	"holdfast/supervisor/internal/vault"
)

// keeperTime bounds how long a request to the keeper may take, unless a session waits for it.
const keeperTime = 5 * time.Second

// before is the state that this program inherits: nothing, the vault entries of a supervisor
// that has died, or the manifest of the previous program of this process.
type before struct {
	vault   *vault.Vault // nil: there is no keeper
	entries []vault.Entry
	exits   *session.Exits
	own     bool      // the previous program of this process left the state
	at      time.Time // if own is set: when that program froze its sessions
	crashed bool      // the previous supervisor died by its own mistake
	table   session.State
	kept    keptBefore
	claim   *vault.Entry // vault entry of the keeper's lock, see message.OwnID; nil: there is none

	claimFile *os.File // its file, if this program took the lock

	presence *vault.Entry // vault entry of the presence; nil: there is none
}

// inherit reads the state that the previous program or the keeper has left.
func inherit() (*before, error) {
	b := &before{exits: session.NewExits()}
	data, fds, ok, err := reexec.Inherited()
	if err != nil {
		return nil, err
	}
	if ok {
		return b, b.fromProgram(data, fds)
	}
	name := os.Getenv(message.EnvSocket)
	if name == "" {
		return b, nil
	}
	fd, err := strconv.Atoi(name)
	if err == nil {
		err = os.Unsetenv(message.EnvSocket)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", message.EnvSocket, err)
	}
	return b, b.fromKeeper(fd)
}

func (b *before) fromProgram(data []byte, fds []int) error {
	m, err := readManifest(data, len(fds))
	if err != nil {
		return err
	}
	b.at, b.own, b.table, b.kept, b.entries = m.At, true, m.Table, m.Kept, m.entries(fds)
	if m.Keeper == nil {
		return nil
	}
	b.vault, err = vault.Resume(fds[*m.Keeper], b.addExit)
	return err
}

func (b *before) fromKeeper(fd int) error {
	v, entries, exits, err := vault.Connect(fd, b.addExit)
	if err != nil {
		return err
	}
	b.vault, b.entries = v, entries
	for _, e := range exits {
		b.addExit(e)
	}
	was := v.Before()
	b.kept.Starts, b.kept.Last = was.Starts, was.Last
	b.crashed = hasDiedByItself(was)
	return nil
}

// hasDiedByItself reports whether a supervisor died by its own mistake. SIGKILL does not count,
// because another process sends it.
func hasDiedByItself(was vault.Before) bool {
	return was.Last != "" && pty.StatusOf(was.Status).Signal != "SIGKILL"
}

// find returns the inherited vault entry with an id and one file, or nil if there is none.
func (b *before) find(id string) *vault.Entry {
	i := slices.IndexFunc(b.entries, func(r vault.Entry) bool { return r.ID == id && len(r.FDs) == 1 })
	if i < 0 {
		return nil
	}
	return &b.entries[i]
}

// locks returns the vault entries of the locks that this program passes on.
func (b *before) locks() (entries []vault.Entry) {
	for _, r := range []*vault.Entry{b.claim, b.presence} {
		if r != nil {
			entries = append(entries, *r)
		}
	}
	return entries
}

// findClaim finds the vault entry of the keeper's lock, so that this program can pass it on. If the
// keeper has no such entry, findClaim takes the lock and gives the keeper one.
func (b *before) findClaim(dir string, log zerolog.Logger) {
	b.claim = b.find(message.OwnID)
	if b.vault == nil || b.claim != nil {
		return
	}
	f, err := keeperstate.Claim(dir, 0)
	var inUse *socket.InUseError
	if errors.As(err, &inUse) { // the keeper has the lock, but this program inherited no duplicate
		return
	}
	var fd int
	if err == nil {
		b.claimFile = f
		fd, err = machine.Descriptor(f)
	}
	if err == nil {
		b.claim = &vault.Entry{ID: message.OwnID, FDs: []int{fd}}
		err = inKeeperTime(func(ctx context.Context) error { return b.vault.Put(ctx, *b.claim) })
	}
	if err != nil {
		log.Error().Err(err).Msg("keeper lock not taken; another keeper could start for the same directory")
	}
}

func (b *before) addExit(e vault.Exit) { b.exits.Record(e.PID, pty.StatusOf(e.Status)) }

// sessionVault returns the vault for sessions, or a nil interface if there is no keeper.
func (b *before) sessionVault(log zerolog.Logger) session.Vault {
	if b.vault == nil {
		return nil
	}
	var ids []string
	for _, r := range b.entries {
		ids = append(ids, r.ID)
	}
	return fdstore.Over(b.vault, ids, log)
}

func (b *before) heritage(s *self) session.Heritage {
	h := session.Heritage{Exits: b.exits, Own: b.own, Crashed: b.crashed, State: b.table, Adopted: b.progress()}
	if !b.own {
		h.State.Seq = s.seq()
	}
	for _, r := range b.entries {
		if session.IsSession(r) {
			h.Entries = append(h.Entries, r)
		}
	}
	return h
}

// isFresh reports whether this supervisor has taken over the sessions of no other supervisor.
func (b *before) isFresh() bool {
	return !b.own && !slices.ContainsFunc(b.entries, func(r vault.Entry) bool { return r.ID == selfEntry })
}

// hasSessions reports whether sessions may depend on this program: it has taken over the state of
// a supervisor that has served, or sessions from the service manager's store. The keeper's lock
// alone is inherited by the first supervisor of a keeper, too.
func (b *before) hasSessions() bool {
	return b.own || slices.ContainsFunc(b.entries, func(r vault.Entry) bool { return r.ID != message.OwnID })
}

// progressInterval is the least time between two reports of progress to the keeper. The shortest
// start_timeout is several times as long.
const progressInterval = 200 * time.Millisecond

// progress returns a function that reports to the keeper that another session was adopted,
// because the keeper ends a supervisor that makes no progress. Any goroutine may call it.
func (b *before) progress() func() {
	if b.vault == nil {
		return func() {}
	}
	var last atomic.Int64 // time of the last report, in ns since begun
	begun := time.Now()
	return func() {
		now, then := int64(time.Since(begun)), last.Load()
		if now-then >= int64(progressInterval) && last.CompareAndSwap(then, now) {
			_ = inKeeperTime(b.vault.Alive) // if the keeper does not answer, this program continues, and Ready reports the error
		}
	}
}

// inKeeperTime sends a request to the keeper, with the deadline keeperTime.
func inKeeperTime(ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), keeperTime)
	defer cancel()
	return ask(ctx)
}

// ready reports to the keeper and to systemd that this supervisor serves.
func (b *before) ready(log zerolog.Logger) {
	if b.vault == nil {
		return
	}
	if err := inKeeperTime(func(ctx context.Context) error { return b.vault.Ready(ctx, os.Args...) }); err != nil {
		log.Error().Err(err).Msg("keeper not notified that this supervisor serves; it may start an older program after a crash")
	}
	if err := fdstore.Ready(); err != nil {
		log.Warn().Err(err).Msg("systemd not notified that the service runs")
	}
}

// keeperPID returns the keeper's pid, or 0 if there is no keeper. The keeper is this process's
// parent.
func (b *before) keeperPID() int {
	if b.vault == nil {
		return 0
	}
	return os.Getppid()
}

// quit requests that the keeper ends when this process ends.
func (b *before) quit(log zerolog.Logger) {
	if b.vault == nil {
		return
	}
	if err := inKeeperTime(b.vault.Quit); err != nil {
		log.Error().Err(err).Msg("keeper not notified of the stop; it will start another supervisor")
	}
}
