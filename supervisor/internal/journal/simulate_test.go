//go:build linux

package journal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
)

// A model is a plain journal: all bytes that were ever accepted.
type model struct {
	*life
	rnd      *rand.Rand
	m        terminal
	all      []byte // accepted, in order
	accepted map[string]uint64
	stream   []byte // a writer's input is this from its offset on, with the first byte of its name added
	same     int    // number of bytes of all that have been compared with the delivered ones
	deaths   int
	tamper   func(room) // changes the room between a death and the adoption
}

const simulated = 4 // number of writers

func newModel(tb testing.TB, seed uint64) *model {
	s := &model{life: newLife(tb, 40_000), rnd: rand.New(rand.NewPCG(seed, 0)), accepted: map[string]uint64{}}
	s.stream = make([]byte, 1<<16)
	for i := range s.stream {
		s.stream[i] = byte(s.rnd.Uint32())
	}
	return s
}

// text returns n bytes of a writer's input from an offset on.
func (s *model) text(name string, offset uint64, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = s.stream[(int(offset)+i)%len(s.stream)] + name[0]
	}
	return p
}

// size returns a random size: small, about that of a pipe, or about that of a queue.
func (s *model) size() int {
	return 1 + s.rnd.IntN([]int{1, 8, 300, pipeBytes + 99, 60_000}[s.rnd.IntN(5)])
}

// ends calls op, which may die at a random step. Then it adopts the journal, which may die as well.
func (s *model) ends(op func()) error {
	step := 0
	if s.rnd.IntN(3) == 0 {
		step = 1 + s.rnd.IntN(20)
	}
	if !s.until(step, op) && s.rnd.IntN(20) > 0 {
		return nil
	}
	s.deaths++
	if s.tamper != nil {
		s.tamper(s.life.room)
	}
	for {
		var err error
		if !s.until(s.rnd.IntN(8), func() { err = s.adopt() }) {
			return err
		}
	}
}

// next executes one random operation and compares.
func (s *model) next() error {
	name := strconv.Itoa(s.rnd.IntN(simulated))
	var err error
	switch s.rnd.IntN(12) {
	case 0, 1, 2, 3:
		err = s.typing(name)
	case 4:
		before, p := s.j.end, s.text("append", s.j.end, s.size())
		err = s.ends(func() { _, _ = s.j.Append(p) })
		s.all = append(s.all, p[:min(uint64(len(p)), s.j.end-before)]...)
	case 5:
		err = s.replacing(name)
	case 6, 7, 8, 9:
		s.m.read(s.size())
		err = s.ends(func() { _, _ = s.j.Flush(&s.m) })
	case 10:
		s.m.room = 0
	case 11:
		if s.rnd.IntN(20) == 0 {
			err = s.ends(func() { _ = s.j.Drop() })
			delivered, left := len(s.m.delivered), s.j.Pending()
			s.all = append(s.all[:delivered:delivered], s.all[len(s.all)-left:]...)
		}
	}
	if err != nil {
		return err
	}
	if delivered := len(s.m.delivered); len(s.all) < delivered || !bytes.Equal(s.m.delivered[s.same:], s.all[s.same:delivered]) {
		return fmt.Errorf("the terminal received other bytes than were accepted, of %d", delivered)
	}
	s.same = len(s.m.delivered)
	if want := len(s.all) - len(s.m.delivered); s.j.Pending() != want {
		return fmt.Errorf("%d bytes are pending, want %d", s.j.Pending(), want)
	}
	return nil
}

// typing sends input that begins with bytes that were accepted before.
func (s *model) typing(name string) error {
	from := s.accepted[name] - min(s.accepted[name], uint64(s.rnd.IntN(50)))
	p := s.text(name, from, s.size())
	var said uint64
	if err := s.ends(func() {
		accepted, _, err := s.j.Accept(name, from, p)
		if err == nil {
			said = accepted
		}
	}); err != nil {
		return err
	}
	return s.compare(name, said, p, from)
}

// compare checks how much of a writer's input was accepted, and adds it to the model.
func (s *model) compare(name string, said uint64, p []byte, from uint64) error {
	had := s.accepted[name]
	got, _, err := s.j.Writer(name)
	switch {
	case err != nil:
		return err
	case got < had || got < said || got > max(had, from+uint64(len(p))):
		return fmt.Errorf("writer %s: %d accepted, after %d and a promise of %d; %d were sent from %d on", name, got, had, said, len(p), from)
	}
	if got > had {
		s.all = append(s.all, p[had-from:got-from]...)
	}
	s.accepted[name] = got
	return nil
}

func (s *model) replacing(name string) error {
	size := s.rnd.IntN(9)
	if s.rnd.IntN(4) == 0 { // more than a pipe accepts as a whole
		size = s.rnd.IntN(4 * atomicWrite)
	}
	count, p := s.rnd.IntN(9), s.text("replace", 0, size)
	before := s.j.end
	if err := s.ends(func() { _, _ = s.j.Replace(name, count, p) }); err != nil {
		return err
	}
	got, _, err := s.j.Writer(name)
	done := got == s.accepted[name]+uint64(count)
	switch {
	case err != nil:
		return err
	case !done && got != s.accepted[name]:
		return fmt.Errorf("writer %s: %d accepted, want %d or %d more", name, got, s.accepted[name], count)
	case len(p) > 0 && count > 0 && done != (s.j.end == before+uint64(len(p))), !done && s.j.end != before:
		return fmt.Errorf("writer %s: replaced %v, with %d of %d bytes", name, done, s.j.end-before, len(p))
	}
	s.all = append(s.all, p[:s.j.end-before]...)
	s.accepted[name] = got
	return nil
}

func (s *model) run(steps int) error {
	for range steps {
		if err := s.next(); err != nil {
			return err
		}
	}
	for s.j.Pending() > 0 {
		s.m.read(maxFlush)
		if _, err := s.j.Flush(&s.m); err != nil {
			return err
		}
	}
	if !bytes.Equal(s.m.delivered, s.all) {
		return fmt.Errorf("the terminal received %d bytes, %d were accepted", len(s.m.delivered), len(s.all))
	}
	return nil
}

// Whichever operations are executed, and at whichever step they die, all accepted input is written once and in order,
// and acknowledged input is accepted.
func TestSimulate(t *testing.T) {
	deaths := 0
	for range 60 {
		seed := rand.Uint64()
		s := newModel(t, seed)
		if err := s.run(200); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		deaths += s.deaths
	}
	t.Logf("%d deaths", deaths)
}

// The simulation fails if the recovery lacks a part.
func TestSimulateFinds(t *testing.T) {
	for name, tamper := range map[string]func(room){
		"the word is not looked at": func(r room) { r.store(wordOperation, 0) },
		"no writer continues":       func(r room) { r.store(wordOperation, r.load(wordOperation)&(1<<operationBits-1)) },
		"the counters are believed": func(r room) { r.store(wordDelivered, r.load(wordPiped)) },
		"pouring is filling": func(r room) {
			if r.load(wordOperation)&(1<<operationBits-1) == uint64(pouring) {
				r.store(wordOperation, uint64(filling))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100) {
				s := newModel(t, seed)
				s.tamper = tamper
				if err := s.run(200); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("no seed found the fault")
		})
	}
}

// Each operation dies at each of its steps, and the adoption after it dies at each of its steps.
func TestEveryStep(t *testing.T) {
	for _, op := range []struct {
		name   string
		before int // bytes that wait before
		do     func(s *model) (said uint64)
	}{
		{"a key", 0, func(s *model) uint64 { return s.accept(1) }},
		{"more than the pipe takes", 0, func(s *model) uint64 { return s.accept(pipeBytes + 1000) }},
		{"behind what waits", pipeBytes + 10, func(s *model) uint64 { return s.accept(1000) }},
		{"more than there is room for", pipeBytes + 10, func(s *model) uint64 { return s.accept(60_000) }},
		{"flush", 39_000, func(s *model) uint64 { _, _ = s.j.Flush(&s.m); return 0 }},
	} {
		t.Run(op.name, func(t *testing.T) {
			points := 0
			for first, lived := 1, false; !lived; first++ {
				for second, adopted := 1, false; !adopted; second++ {
					s := newModel(t, 1)
					if n := s.accept(op.before); n != uint64(op.before) {
						t.Fatal(n)
					}
					s.all, s.accepted["0"] = s.text("0", 0, op.before), uint64(op.before)
					s.m.read(20_000)
					var said uint64
					lived = !s.until(first, func() { said = op.do(s) })
					var err error
					if s.until(second, func() { err = s.adopt() }) {
						err = s.adopt()
					} else {
						adopted = true
					}
					if err == nil {
						err = s.compare("0", said, s.text("0", uint64(op.before), 100_000), uint64(op.before))
					}
					if err == nil {
						err = s.run(0)
					}
					if err != nil {
						t.Fatalf("step %d, and %d of the adoption: %v", first, second, err)
					}
					points++
				}
			}
			t.Logf("%d points", points)
		})
	}
}

// A new writer that replaces the oldest one does so completely or not at all, and other writers do not change.
func TestForgetAtEveryStep(t *testing.T) {
	for step, lived := 1, false; !lived; step++ {
		l := newLife(t, 0)
		for i := range maxIdle {
			if _, _, err := l.j.Accept(strconv.Itoa(i), 0, make([]byte, 1+i%5)); err != nil {
				t.Fatal(err)
			}
		}
		lived = !l.until(step, func() { _, _, _ = l.j.Writer("new") })
		if err := l.adopt(); err != nil {
			t.Fatal(err)
		}
		for i := 1; i < maxIdle; i++ {
			if w := l.j.writers.byName[strconv.Itoa(i)]; w == nil || w.load(slotAccepted) != uint64(1+i%5) {
				t.Fatalf("step %d: writer %d is damaged", step, i)
			}
		}
		if accepted, _, err := l.j.Writer("new"); accepted != 0 || err != nil || l.j.Known() != maxIdle {
			t.Errorf("step %d: %d, %v, %d writers", step, accepted, err, l.j.Known())
		}
	}
}

// accept sends the next n bytes of writer 0.
func (s *model) accept(n int) uint64 {
	from, _, _ := s.j.Writer("0")
	accepted, _, _ := s.j.Accept("0", from, s.text("0", from, n))
	return accepted
}
