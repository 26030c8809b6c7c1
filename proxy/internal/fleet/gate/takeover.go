package gate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"

	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/credential"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// predecessor stands for the address of the gate before this one, as long as its hosts have not all come
// over. It is no valid address.
const predecessor = "the gate before"

// recallLimit is how long the gate before this one may take to close its connections.
const recallLimit = 5 * time.Second

// A Takeover tells where a new gate finds the gate that runs.
type Takeover struct {
	ControlPath, HandoffPath string // of the sockets
	// Timeout is how long this gate may take until it has passed its trial.
	Timeout time.Duration
	// Serving is called when this gate has taken over from the gate with a pid.
	Serving func(pid int)
}

// Run takes over from the gate that runs, and serves until ctx is done, or until a successor has taken over
// in turn. If it returns an error before Serving was called, the old gate continues to serve.
//
// Before it takes over, this gate is connected with the bus of the old one, like one of several gates, so
// that it reaches all hosts from its first moment. The old gate then asks it for its hosts over TLS.
func (t Takeover) Run(ctx context.Context, store *credential.Store, log zerolog.Logger, o Options) error {
	take, err := handoff.Begin(ctx, t.HandoffPath, handoff.Hello{Build: version.String(), Records: records, Timeout: t.Timeout})
	if err != nil {
		return err
	}
	g, err := newGate(ctx, store, log, o)
	if err != nil {
		take.GiveUp(err)
		return err
	}
	defer g.close()
	err = g.connectPredecessor(t.ControlPath, cmp.Or(t.Timeout, handoff.Timeout)/2)
	if err == nil {
		err = g.standTrial(take)
	}
	if err != nil {
		take.GiveUp(err)
		return fmt.Errorf("the old gate continues to serve: %w", err)
	}
	s, err := t.adopt(take)
	if err != nil {
		take.GiveUp(err)
		return fmt.Errorf("the old gate continues to serve: %w", err)
	}
	if err := g.commit(take); err != nil {
		return fmt.Errorf("the old gate continues to serve: %w", errors.Join(err, s.release()))
	}
	log.Info().Int("old_pid", take.PID).Str("old_version", take.Version).Msg("this gate took over from the old one")
	t.Serving(take.PID)
	return g.run(s)
}

// commit makes this gate the one that serves. If it returns an error, the old gate serves.
func (g *Gate) commit(take *handoff.Take) error {
	_, state, err := take.Prepared(func([]handoff.Conn, []byte, <-chan struct{}) error {
		return errors.New("a gate passes on no connections")
	})
	if err != nil && !errors.Is(err, handoff.ErrGone) {
		return err
	}
	// From here on, the old gate changes nothing in the store, and issues no tickets.
	if err := errors.Join(g.web.AddTickets(state), g.learnAgain()); err != nil {
		take.GiveUp(err)
		return err
	}
	if err == nil {
		if err := take.CheckTime(); err != nil {
			take.GiveUp(err)
			return err
		}
	}
	g.returnsUntil = time.Now().Add(returnLimit)
	g.counts.hasTakenOver.Store(true)
	if err == nil {
		err = take.Serving()
	}
	if err != nil && !errors.Is(err, handoff.ErrGone) { // the old gate has given up before
		return err
	}
	if err != nil { // it has died, so no gate serves
		g.log.Warn().Err(err).Msg("old gate ended before its last message; this gate serves nevertheless")
	}
	return nil
}

// learnAgain learns the changes that the old gate has made in the store since this gate began.
func (g *Gate) learnAgain() error {
	g.changes.Lock()
	defer g.changes.Unlock()
	g.sum = ""
	if err := g.store.Reload(); err != nil {
		return err
	}
	members, err := g.learn()
	if err == nil {
		g.setPeers(members.Addresses())
	}
	return err
}

// standTrial serves at an address of its own, and lets the old gate ask for the hosts there.
func (g *Gate) standTrial(take *handoff.Take) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	g.wg.Go(func() { _ = g.accept(ln) }) // it ends with ln
	body, err := json.Marshal(trial{Address: ln.Addr().String()})
	if err == nil {
		_, err = take.Look(body)
	}
	return err
}

// adopt makes sockets of the files that the old gate has offered.
func (t Takeover) adopt(take *handoff.Take) (s Sockets, err error) {
	files := map[string][]*os.File{}
	for _, name := range []string{filesListener, filesControl, filesHandoff} {
		files[name] = take.Files(name)
	}
	if len(files[filesListener]) != 1 {
		err = errors.New("the old gate has not offered its socket")
	} else {
		s.Listener, err = net.FileListener(files[filesListener][0])
	}
	for _, f := range files[filesListener] {
		_ = f.Close() // FileListener has a duplicate
	}
	control, controlErr := socket.Adopt(t.ControlPath, files[filesControl], socket.Options{})
	offers, offersErr := socket.Adopt(t.HandoffPath, files[filesHandoff], socket.Options{})
	if err = errors.Join(err, controlErr, offersErr); err == nil {
		s.Control, s.Handoff = control, offers
		return s, nil
	}
	if s.Listener != nil {
		_ = s.Listener.Close() // err is returned
	}
	if controlErr == nil {
		_ = control.Release()
	}
	if offersErr == nil {
		_ = offers.Release()
	}
	return Sockets{}, err
}

// connectPredecessor connects this gate with the bus of the gate that runs. It returns an error if that takes longer than
// limit. This gate then must not take over: it could not recall the old gate, and would connect with itself, because it
// listens at controlPath after the takeover. For the same reason, a connection that has ended is not made again.
func (g *Gate) connectPredecessor(controlPath string, limit time.Duration) error {
	ctx, end := context.WithCancel(g.ctx)
	p := &peer{address: predecessor, end: end, ended: make(chan struct{}), dial: func(ctx context.Context) (net.Conn, string, error) {
		if g.dir.IsGateReachable(predecessor) {
			return nil, "", errors.New("the gate before has ended")
		}
		return dialPredecessor(ctx, controlPath)
	}}
	g.mu.Lock()
	g.peers[predecessor] = p
	g.mu.Unlock()
	g.wg.Go(func() { g.keepPeer(ctx, p) })
	late := time.NewTimer(limit)
	defer late.Stop()
	for !g.dir.IsGateReachable(predecessor) {
		reason := ""
		select {
		case <-time.After(trialPause):
			continue
		case <-p.ended:
			reason = "it has not accepted the connection"
		case <-late.C:
			reason = fmt.Sprintf("it has not answered within %v", limit)
		}
		return fmt.Errorf("not connected with the bus of the gate before: %s", reason)
	}
	return nil
}

// dialPredecessor opens a connection with the bus of the gate with the control socket path.
func dialPredecessor(ctx context.Context, path string) (conn net.Conn, password string, err error) {
	conn, _, err = socket.Dial(ctx, path)
	if err != nil {
		return nil, "", err
	}
	_ = conn.SetDeadline(time.Now().Add(controlLimit))
	_, err = fmt.Fprintln(conn, controlBus)
	for b := make([]byte, 1); err == nil && len(password) < maxControl; { // the bytes behind the line belong to the bus
		if _, err = conn.Read(b); err == nil && b[0] == '\n' {
			return conn, password, conn.SetDeadline(time.Time{})
		}
		password += string(b)
	}
	return nil, "", errors.Join(err, conn.Close(), errors.New("the gate before has not answered"))
}

// connectSuccessor connects the successor of this gate with the bus until the connection ends.
func (g *Gate) connectSuccessor(conn net.Conn) {
	server, password, err := g.bus.Admit(bus.GateUser)
	if err != nil {
		return
	}
	defer g.bus.Forget(password)
	g.mu.Lock()
	isBusy := g.isClosed || g.link != nil
	if !isBusy {
		g.link = conn
	}
	g.mu.Unlock()
	if !isBusy {
		_ = conn.SetDeadline(time.Time{})
		if _, err := fmt.Fprintln(conn, password); err == nil {
			splice(conn, server)
		}
		g.mu.Lock()
		g.link = nil
		g.mu.Unlock()
	}
	_ = server.Close() // the server may have closed it
}

// isAlone reports whether the gate before this one has ended.
func (g *Gate) isAlone() bool {
	g.mu.Lock()
	p := g.peers[predecessor]
	g.mu.Unlock()
	if p == nil {
		return true
	}
	select {
	case <-p.ended:
		return true
	case <-time.After(endedPause):
		return false
	}
}

// predecessorEnded notes that the gate before this one has closed all its connections. Its hosts that are not connected with
// this gate yet are still shown as reachable for returnLimit, as those that have left it.
func (g *Gate) predecessorEnded(p *peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.peers[predecessor] == p {
		delete(g.peers, predecessor)
		if g.counts.hasTakenOver.Load() {
			time.AfterFunc(returnLimit, func() { g.dir.SetGate(predecessor, false) })
		} else {
			g.dir.SetGate(predecessor, false)
		}
		g.failDials(func(d *dial) bool { return d.gate == predecessor })
		close(p.ended)
		p.end()
	}
}

// recallPredecessor lets the gate before this one close all its connections, of which some must not stay.
func (g *Gate) recallPredecessor() {
	g.mu.Lock()
	p := g.peers[predecessor]
	g.mu.Unlock()
	if p == nil || p.tell(record.KindRecall, nil) != nil {
		return
	}
	select {
	case <-p.ended:
	case <-time.After(recallLimit):
		g.log.Error().Bool("security", true).Msg("the old gate has not closed its connections")
	}
}

// hostLeft notes that a host has left the gate before this one. It is still shown as reachable, because it
// connects with this gate at once, but nothing is sent to it meanwhile.
func (g *Gate) hostLeft(key string, m record.Lost) {
	g.mu.Lock()
	g.left[key] = true
	g.mu.Unlock()
	time.AfterFunc(returnLimit, func() { g.dir.Lost(key, predecessor, m) })
}

// hasLeft reports whether a host has left the gate before this one, or that gate has ended.
func (g *Gate) hasLeft(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hasLeftLocked(key)
}

// hasLeftLocked is hasLeft if mu is held.
func (g *Gate) hasLeftLocked(key string) bool { return g.left[key] || g.peers[predecessor] == nil }
