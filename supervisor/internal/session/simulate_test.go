//go:build linux || darwin

package session

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "the first seed of the simulation; 0 is a new one")
	simSeeds = flag.Int("sim.seeds", 40, "how many histories are simulated")
)

// TestSimulate runs other histories each time. A failure prints its seed. The seed decides the actions, but not how
// the session's goroutines are scheduled, so that a rare failure may need many runs of its seed (-count).
func TestSimulate(t *testing.T) {
	seed := *simSeed
	if seed == 0 {
		seed = rand.Uint64() >> 16
	}
	for i := range *simSeeds {
		if err := simulate(t, seed+uint64(i), plant{}); err != nil {
			t.Fatalf("%v\nagain: go test -run '^TestSimulate$' -sim.seeds=1 -sim.seed=%d", err, seed+uint64(i))
		}
	}
}

// simulate runs a seeded history of output, input, resizes, reads, slow viewers, lost connections, resumes, steals,
// handoffs, crashes of the proxy and the end, and compares it with a plain model. A viewer that resumes at its offset
// receives every byte once, unless it is told how many it has missed, and knows at which size each was printed. A
// viewer with its own view has that screen. The session has the size that its policy demands. Every byte of input
// arrives once and in order. Every viewer that stays attached receives the exit after the last byte.
func simulate(t *testing.T, seed uint64, p plant) (err error) {
	synctest.Test(t, func(t *testing.T) {
		m := newSim(t, seed, p)
		defer m.close()
		for m.step = range 50 + m.rnd.IntN(100) {
			if err = m.next(); err != nil {
				return
			}
		}
		err = m.end()
	})
	if err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	return nil
}

type sim struct {
	t     *testing.T
	rnd   *rand.Rand
	noise *rand.ChaCha8 // random output
	plant plant
	step  int

	tb      *Table
	s       *Session
	pty     *fakePTY
	model   *model
	sizes   *sizes
	clients []*client
	got     []byte // input that the child has read
}

// A client reads and sends input through one attachment after the other.
type client struct {
	mark     byte // the upper two bits of each byte of its input
	spec     protocol.AttachSpec
	v        *viewer // nil while it is not attached
	left     *protocol.Resume
	evicted  bool   // another attachment has evicted it
	accepted uint64 // bytes of its input that were accepted
}

const simClients = 4

func newSim(t *testing.T, seed uint64, p plant) *sim {
	m := &sim{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), noise: rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}), plant: p, model: &model{lines: 100}}
	m.tb = NewTable(Config{
		RingBytes: ring.MinBytes, InputBytes: 1 + m.rnd.IntN(20_000), ScrollbackLines: m.model.lines,
		Start: func(spec pty.Spec) (PTY, error) {
			m.pty = newFake(spec)
			m.pty.room, m.pty.perRead = 1+m.rnd.IntN(4096), 1+m.rnd.IntN(8192)
			m.pty.plain = m.rnd.IntN(2) == 0
			if p.pty != nil {
				return p.pty(m.pty), nil
			}
			return m.pty, nil
		},
	})
	// The model has a size begin after all that was printed, so the child must not wait for a first viewer.
	m.s = create(t, m.tb, protocol.SpawnSpec{Argv: []string{"bash"}, Unattended: true})
	m.sizes = &sizes{policy: protocol.SizeLatest, now: info(t, m.s).Size}
	m.model.sizes = []sizeAt{{0, m.sizes.now}}
	for i := range simClients {
		m.clients = append(m.clients, &client{mark: byte(i << 6), spec: protocol.AttachSpec{Writer: fmt.Sprint("w", i), Client: fmt.Sprint("c", i)}})
	}
	return m
}

func (m *sim) close() {
	for _, c := range m.clients {
		if c.v != nil {
			c.v.a.Close()
		}
	}
	shutdown(m.t, m.tb)
}

// often lists the actions with their weights.
var often = []struct {
	weight int
	do     func(*sim, *client) error
}{
	{8, (*sim).print},
	{8, (*sim).look},
	{5, (*sim).attach},
	{3, (*sim).drop},
	{8, (*sim).typed},
	{5, func(m *sim, _ *client) error { m.read(m.rnd.IntN(3000)); return nil }},
	{3, (*sim).resize},
	{1, (*sim).policy},
	{1, (*sim).handoff},
	{1, (*sim).crash},
	{3, func(*sim, *client) error { synctest.Wait(); return nil }},
	{2, func(m *sim, _ *client) error { return m.wait(time.Duration(m.rnd.IntN(50)) * time.Millisecond) }},
	{1, func(m *sim, _ *client) error { return m.wait(time.Duration(m.rnd.Int64N(int64(2 * reconnectTime)))) }},
}

func (m *sim) next() error {
	total := 0
	for _, a := range often {
		total += a.weight
	}
	n := m.rnd.IntN(total)
	for i, a := range often {
		if n -= a.weight; n < 0 {
			c := m.clients[m.rnd.IntN(len(m.clients))]
			if err := a.do(m, c); err != nil {
				return fmt.Errorf("step %d, action %d of %s: %w", m.step, i, c.spec.Client, err)
			}
			break
		}
	}
	if m.plant.step != nil {
		m.plant.step(m)
	}
	return nil
}

func (m *sim) print(*client) error {
	n := 1 + m.rnd.IntN(500)
	if m.rnd.IntN(5) == 0 { // now and then more than the ring holds
		n = m.rnd.IntN(2 * ring.MinBytes)
	}
	p := m.bytes(n)
	m.model.printed = append(m.model.printed, p...)
	m.pty.print(p)
	return nil
}

func (m *sim) bytes(n int) []byte {
	p := make([]byte, n)
	_, _ = m.noise.Read(p) // never fails
	for i, b := range p {
		switch b &= 0x7f; b { // avoids bytes whose answer by the terminal would look like input
		case 0x1b:
			p[i] = '\n'
		case 0x05:
			p[i] = '\r'
		default:
			p[i] = b
		}
	}
	return p
}

// look reads up to nine items.
func (m *sim) look(c *client) error {
	if c.v == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c.v.buf = make([]byte, 1+m.rnd.IntN(64<<10))
	for n := m.rnd.IntN(10); n != 0; n-- {
		_, err := c.v.take(ctx)
		c.v.seen = nil
		switch {
		case errors.Is(err, context.Canceled):
			return m.checkAcknowledged(c)
		case err == io.EOF:
			if c.v.stolen != c.evicted || c.v.exited == c.evicted {
				return fmt.Errorf("the attachment ended; stolen %v, exited %v, want stolen %v", c.v.stolen, c.v.exited, c.evicted)
			}
			return nil
		case err != nil:
			return err
		}
	}
	return m.checkAcknowledged(c)
}

// checkAcknowledged checks that no more input was acknowledged than was accepted.
func (m *sim) checkAcknowledged(c *client) error {
	if c.v.accepted > c.accepted {
		return fmt.Errorf("%d bytes were acknowledged, but %d were accepted", c.v.accepted, c.accepted)
	}
	return nil
}

// attach attaches anew or resumes, in a random mode, and notes which clients the attach evicts.
func (m *sim) attach(c *client) error {
	spec := c.spec
	spec.Mode = []protocol.Mode{"", "", protocol.ModeShared, protocol.ModeExclusive}[m.rnd.IntN(4)]
	if c == m.clients[len(m.clients)-1] {
		spec.Mode = protocol.ModeReadOnly // always, because a writer's name cannot be used by a read-only attachment
	}
	spec.Steal = m.rnd.IntN(2) == 0
	if m.rnd.IntN(4) > 0 {
		spec.Resume = c.left
	}
	if m.rnd.IntN(3) == 0 {
		spec.Cols = m.rnd.IntN(3) * 50
	}
	if m.rnd.IntN(2) == 0 {
		spec.View = protocol.ViewOwn
	}
	return m.attachAs(c, spec)
}

// handoff attaches every client again, as another proxy does while the first proxy still has its attachments.
func (m *sim) handoff(*client) error {
	for _, c := range m.clients {
		if c.v == nil || c.evicted {
			continue
		}
		spec := c.spec
		spec.Resume, spec.Snapshot = c.v.resume()
		if err := m.attachAs(c, spec); err != nil {
			return fmt.Errorf("handoff of %s: %w", c.spec.Client, err)
		}
	}
	return nil
}

// crash closes every attachment, as if the proxy had been killed.
func (m *sim) crash(*client) error {
	for _, c := range m.clients {
		if err := m.lose(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *sim) attachAs(c *client, spec protocol.AttachSpec) error {
	var rivals []*client
	for _, other := range m.clients {
		if other == c || other.v == nil || other.evicted {
			continue
		}
		alone := spec.Mode == protocol.ModeExclusive || other.spec.Mode == protocol.ModeExclusive
		if alone && spec.Mode != protocol.ModeReadOnly && other.spec.Mode != protocol.ModeReadOnly {
			rivals = append(rivals, other)
		}
	}
	refused := len(rivals) > 0 && !spec.Steal
	window, _ := spec.OwnSize()
	if spec.Cols == 0 && spec.Rows == 0 {
		window = protocol.Size{}
	}
	m.size(func() {
		if refused {
			return
		}
		for _, other := range rivals {
			m.sizes.stolen(other.spec.Writer)
		}
		m.sizes.attach(c.spec.Writer, window, spec.Mode == protocol.ModeReadOnly, spec.Resume == nil)
	})
	v, err := attach(m.s, spec, m.model)
	if refused {
		if !errors.Is(err, protocol.ErrAlreadyAttached) {
			return fmt.Errorf("attach: %v, want already_attached", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	for _, other := range rivals {
		other.evicted = true
	}
	if c.v != nil {
		c.v.a.Close() // the newer attachment has replaced this one, so closing it has no effect
	}
	if spec.Writer != "" && v.info.InputOffset != c.accepted {
		return fmt.Errorf("attached with %d bytes of input accepted, want %d", v.info.InputOffset, c.accepted)
	}
	if got := v.info.Session.Size; got != m.sizes.now {
		return fmt.Errorf("attached at %v, want %v", got, m.sizes.now)
	}
	c.v, c.left, c.evicted = v, nil, false
	c.spec.Mode, c.spec.View, c.spec.Cols, c.spec.Rows = spec.Mode, spec.View, spec.Cols, spec.Rows
	return nil
}

// size calls how, which may change the size, after all earlier output has been read, so that the model knows the
// offset of the change.
func (m *sim) size(how func()) {
	synctest.Wait()
	before := m.sizes.now
	if how(); m.sizes.now != before {
		m.resized(m.sizes.now)
	}
}

// wait lets time pass.
func (m *sim) wait(d time.Duration) error {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
	for _, size := range m.sizes.passed() {
		m.resized(size)
	}
	if got := info(m.t, m.s).Size; got != m.sizes.now {
		return fmt.Errorf("after a while the size is %v, want %v", got, m.sizes.now)
	}
	return nil
}

func (m *sim) policy(*client) error {
	all := []protocol.SizePolicy{protocol.SizeLatest, protocol.SizeOwner, protocol.SizeSmallest, protocol.SizeLargest, protocol.SizeFixed}
	policy, cols := all[m.rnd.IntN(len(all))], m.rnd.IntN(2)*(30+m.rnd.IntN(60))
	m.size(func() {
		m.sizes.policy = policy
		if cols > 0 {
			m.sizes.now = protocol.Size{Cols: cols}.Normalize()
		} else {
			m.sizes.now = m.sizes.wanted()
		}
	})
	return m.s.SetSizePolicy(policy, cols, 0)
}

func (m *sim) resized(size protocol.Size) {
	m.model.sizes = append(m.model.sizes, sizeAt{uint64(len(m.model.printed)), size})
}

// drop detaches a client, or loses its connection.
func (m *sim) drop(c *client) error {
	if m.rnd.IntN(2) == 0 {
		return m.lose(c)
	}
	if c.v == nil {
		return nil
	}
	m.size(func() {
		if !c.evicted {
			m.sizes.detached(c.spec.Writer)
		}
	})
	c.v.a.Detach()
	c.leaves()
	return nil
}

func (m *sim) lose(c *client) error {
	if c.v == nil {
		return nil
	}
	if !c.evicted {
		m.sizes.lost(c.spec.Writer)
	}
	c.v.a.Close()
	c.leaves()
	return nil
}

// leaves remembers where the client can resume, if it has a position.
func (c *client) leaves() {
	at, half := c.v.resume()
	if c.left = at; half {
		c.left = nil
	}
	c.v, c.evicted = nil, false
}

// typedAt returns the byte of a client's input at an offset.
func (c *client) typedAt(k uint64) byte { return c.mark | byte(k^k>>6^k>>12)&63 }

// typed sends the next input, or input that was sent before, or leaves some out.
func (m *sim) typed(c *client) error {
	if c.v == nil {
		return nil
	}
	from := c.accepted
	switch m.rnd.IntN(5) {
	case 0:
		from -= min(from, m.rnd.Uint64N(100))
	case 1:
		from += m.rnd.Uint64N(3)
	}
	p := make([]byte, m.rnd.IntN(300))
	if m.rnd.IntN(10) == 0 {
		p = make([]byte, m.rnd.IntN(10_000))
	}
	for i := range p {
		p[i] = c.typedAt(from + uint64(i))
	}
	if new := from <= c.accepted && from+uint64(len(p)) > c.accepted; new && !c.evicted && c.spec.Mode != protocol.ModeReadOnly {
		m.size(func() { m.sizes.typed(c.spec.Writer) })
	}
	return m.accept(c, from, from+uint64(len(p)), c.v.a.Type(from, p))
}

// accept checks the result of Type, and notes how much input was accepted.
func (m *sim) accept(c *client, from, end uint64, err error) error {
	e := protocol.AsError(err)
	var want protocol.Code
	switch {
	case c.spec.Mode == protocol.ModeReadOnly:
		want = protocol.CodePermissionDenied
	case c.evicted:
		want = protocol.CodeNotAttached
	case from > c.accepted:
		want = protocol.CodeInputGap
	case e != nil && e.Code == protocol.CodeInputFull && *e.Offset >= c.accepted && *e.Offset < end:
		c.accepted = *e.Offset
		return nil
	case err == nil:
		c.accepted = max(c.accepted, end)
		return nil
	}
	if e == nil || e.Code != want || want == protocol.CodeInputGap && *e.Offset != c.accepted {
		return fmt.Errorf("input [%d, %d) after %d accepted: %v, want %q", from, end, c.accepted, err, want)
	}
	return nil
}

func (m *sim) read(n int) { m.got = append(m.got, m.pty.take(n)...) }

func (m *sim) resize(c *client) error {
	size := protocol.Size{Cols: 1 + m.rnd.IntN(3), Rows: 24}
	if c.v == nil {
		m.size(func() { m.sizes.now = size })
		return m.s.Resize(size)
	}
	m.size(func() {
		if !c.evicted {
			m.sizes.resized(c.spec.Writer, size)
		}
	})
	err := c.v.a.Resize(size)
	if c.evicted && protocol.CodeOf(err) == protocol.CodeNotAttached {
		return nil
	}
	if err == nil {
		c.spec.Cols, c.spec.Rows = size.Cols, size.Rows
		c.v.resized(size)
	}
	return err
}

// end lets the child read all input, ends the session in one of several ways, and lets every client read to the end.
func (m *sim) end() error {
	for synctest.Wait(); len(m.pty.in) > 0; synctest.Wait() {
		m.read(1 + m.rnd.IntN(5000))
	}
	for _, c := range m.clients {
		if err := m.arrived(c); err != nil {
			return err
		}
	}
	want, err := m.ends()
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	synctest.Wait()
	if !isClosed(m.s.Exited()) {
		return errors.New("the session does not exit")
	}
	if got := m.s.Exit(); got.Outcome != want.Outcome || got.Reason != want.Reason || got.ExitCode != want.ExitCode {
		return fmt.Errorf("got record %+v, want %+v", got, want)
	}
	if m.rnd.IntN(2) == 0 { // the session may be forgotten; attached clients still receive everything
		if err := m.tb.Forget(m.s.ID(), ""); err != nil {
			return err
		}
		<-m.s.gone
	}
	for _, c := range m.clients {
		if err := m.last(c); err != nil {
			return fmt.Errorf("end of %s: %w", c.spec.Client, err)
		}
	}
	return nil
}

// arrived checks that a client's input arrived whole and in order.
func (m *sim) arrived(c *client) error {
	n := uint64(0)
	for _, b := range m.got {
		if b&0xc0 != c.mark {
			continue
		}
		if want := c.typedAt(n); b != want {
			return fmt.Errorf("byte %d of %s arrived as %#x, sent was %#x", n, c.spec.Client, b, want)
		}
		n++
	}
	if n != c.accepted {
		return fmt.Errorf("the child got %d bytes of %s, not the %d accepted", n, c.spec.Client, c.accepted)
	}
	return nil
}

func (m *sim) ends() (want protocol.ExitRecord, err error) {
	words := m.bytes(m.rnd.IntN(10_000))
	m.model.printed = append(m.model.printed, words...)
	switch m.rnd.IntN(3) {
	case 0:
		m.pty.print(words)
		m.pty.exit(pty.Status{Code: 7})
		return protocol.ExitRecord{ExitCode: 7, Outcome: protocol.OutcomeNatural, Reason: protocol.ReasonExited}, nil
	case 1:
		m.pty.words = words
		want = protocol.ExitRecord{ExitCode: 129, Outcome: protocol.OutcomeSoft, Reason: protocol.ReasonUserRequested}
	case 2:
		m.pty.words, m.pty.deaf = words, true
		want = protocol.ExitRecord{ExitCode: 137, Outcome: protocol.OutcomeHard, Reason: protocol.ReasonUserRequested}
	}
	return want, m.s.Terminate(End{})
}

// last lets a client read to the end of the output, attached or not.
func (m *sim) last(c *client) error {
	if c.v == nil && c.left != nil && !isClosed(m.s.gone) {
		spec := c.spec
		spec.Resume, spec.Mode, spec.View, spec.Writer = c.left, protocol.ModeReadOnly, "", "" // a read-only viewer without a writer can still attach
		if err := m.attachAs(c, spec); err != nil {
			return err
		}
	}
	if c.v == nil {
		return nil
	}
	over, err := c.v.drain()
	switch {
	case err != nil:
		return err
	case !over || c.v.stolen != c.evicted || c.v.exited == c.evicted:
		return fmt.Errorf("over %v, stolen %v, exited %v; want stolen %v", over, c.v.stolen, c.v.exited, c.evicted)
	case c.v.exited && c.v.pos != uint64(len(m.model.printed)):
		return fmt.Errorf("received the exit at offset %d of %d", c.v.pos, len(m.model.printed))
	}
	return nil
}
