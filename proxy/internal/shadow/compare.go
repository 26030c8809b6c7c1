package shadow

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"holdfast/protocol"
	"holdfast/proxy/internal/linkclient"
)

const (
	// tries is how often the two look at a session before what they saw counts:
	// a resize, an exit or a byte may have come between their looks.
	tries = 3
	// movedTries is the same for screens that stand for different offsets: who
	// prints between two looks mostly does so again.
	movedTries = 2
	// screenTries is the same for screens that differ at one offset. Supervisors up
	// to 0.1.0 list a screen's colours in any order: over so many looks that shows,
	// and such a session is compared by its output.
	screenTries = 8
	// maxOutput is how much output is compared of a session whose screens stand
	// for different offsets. It is far less than a ring keeps.
	maxOutput = 64 << 10
)

// A Report says what was compared.
type Report struct {
	Sessions int // by their screens
	ByOutput int // by what they printed, since they printed all the time
	Unseen   int // in neither way
	Gone     int // that ended meanwhile
}

// A Difference is a session of which two proxies see different things.
type Difference struct {
	Session protocol.SessionID
	Offset  uint64
	What    string // differs, never how
}

func (d *Difference) Error() string {
	return fmt.Sprintf("session %s at offset %d: the two proxies differ in %s", d.Session, d.Offset, d.What)
}

// Unwrap gives it its code: one of the two is wrong.
func (d *Difference) Unwrap() error { return protocol.Errorf(protocol.CodeInternal, d.Error()) }

// A comparison is under way.
type comparison struct {
	link   *linkclient.Client
	theirs func(context.Context, []Ask) ([]View, error)
	report Report
}

// A subject is a session that is being compared. Each look that settles nothing
// counts as one of three.
type subject struct {
	ask                    Ask // the next
	moved, unseen, differs int
	ours, theirs           View // of the last look at screens that differed
}

// Compare looks at every session that lives, has the other proxy look as well,
// and returns a *Difference for the first of which they see different things.
// theirs is called while we look, with up to MaxAsks asks, and has to return
// when its context ends.
//
// Errors: a *Difference; internal where the other answers what it was not
// asked; those of Look and of theirs.
func Compare(ctx context.Context, link *linkclient.Client, theirs func(context.Context, []Ask) ([]View, error)) (Report, error) {
	all, err := link.List(ctx, "")
	if err != nil {
		return Report{}, fmt.Errorf("list sessions: %w", err)
	}
	var subjects []*subject
	for _, s := range all {
		if s.State != protocol.StateExited && s.State != protocol.StateForgotten {
			subjects = append(subjects, &subject{ask: Ask{Session: s.ID, Instance: s.Instance}})
		}
	}
	c := &comparison{link: link, theirs: theirs}
	for some := range slices.Chunk(subjects, MaxAsks) {
		for len(some) > 0 {
			if some, err = c.round(ctx, some); err != nil {
				return c.report, err
			}
		}
	}
	return c.report, nil
}

// round looks once and returns those to be looked at again.
func (c *comparison) round(ctx context.Context, some []*subject) (again []*subject, err error) {
	asks := make([]Ask, len(some))
	for i, s := range some {
		asks[i] = s.ask
	}
	ours, theirs, err := c.look(ctx, asks)
	if err != nil {
		return nil, err
	}
	for i, s := range some {
		settled, err := c.judge(s, ours[i], theirs[i])
		if err != nil {
			return nil, err
		}
		if !settled {
			again = append(again, s)
		}
	}
	return again, nil
}

// look has both look at the same time: the less lies between, the fewer have
// printed on.
func (c *comparison) look(ctx context.Context, asks []Ask) (ours, theirs []View, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var other sync.WaitGroup
	other.Go(func() {
		var err error
		if theirs, err = c.theirs(ctx, slices.Clone(asks)); err != nil {
			fail(fmt.Errorf("the other proxy's look: %w", err))
		}
	})
	if ours, err = Look(ctx, c.link, asks); err != nil {
		fail(err)
	}
	other.Wait()
	if err := context.Cause(ctx); err != nil { // the first of the two
		return nil, nil, err
	}
	return ours, theirs, answered(asks, theirs)
}

// answered checks that the other proxy has looked where it was asked to.
func answered(asks []Ask, views []View) error {
	if len(views) != len(asks) {
		return protocol.Errorf(protocol.CodeInternal, fmt.Sprintf("the other proxy answers %d asks with %d views", len(asks), len(views)))
	}
	for i, v := range views {
		if v.Session != asks[i].Session {
			return protocol.Errorf(protocol.CodeInternal, fmt.Sprintf("the other proxy was asked for session %s, and tells of %.80q", asks[i].Session, string(v.Session)))
		}
	}
	return nil
}

// judge reports whether two views settle how it is with a session; else its
// next ask is made.
func (c *comparison) judge(s *subject, ours, theirs View) (settled bool, err error) {
	ofOutput := s.ask.ofOutput()
	switch {
	case ours.Gone && theirs.Gone:
		c.report.Gone++
		return true, nil
	case ours.Gone != theirs.Gone:
		return false, s.differ("whether it is there", ours, theirs)
	case ours.Unseen || theirs.Unseen:
		return c.unseen(s), nil
	case ours.Instance != theirs.Instance:
		return false, s.differ("its instance", ours, theirs)
	case ours.Offset != theirs.Offset && !ofOutput:
		s.move(ours.Offset, theirs.Offset)
		return false, nil
	case ofOutput && (ours.Offset != theirs.Offset || ours.Sum != theirs.Sum): // what was printed does not change
		return false, difference(fmt.Sprintf("the output since offset %d", s.ask.From), ours, theirs)
	case ofOutput:
		c.report.ByOutput++
		return true, nil
	case ours.Size != theirs.Size:
		return false, s.differ("its size", ours, theirs)
	case ours.Sum != theirs.Sum:
		return false, s.otherScreens(ours, theirs)
	}
	c.report.Sessions++
	return true, nil
}

func (c *comparison) unseen(s *subject) (settled bool) {
	s.screen()
	if s.unseen++; s.unseen < tries {
		return false
	}
	c.report.Unseen++
	return true
}

// screen makes the next look one at the screen.
func (s *subject) screen() { s.ask.From, s.ask.To = 0, 0 }

// move is for screens that stand for different offsets: after some looks that
// will not change, and the next one is at the output on which they agree.
func (s *subject) move(a, b uint64) {
	if s.moved++; s.moved < movedTries {
		return
	}
	s.ask.From, s.ask.To = min(a, b), max(a, b)
	if s.ask.To-s.ask.From > maxOutput {
		s.ask.From = s.ask.To - maxOutput
	}
}

// differ returns a Difference, if this is not the first.
func (s *subject) differ(what string, ours, theirs View) error {
	s.screen()
	if s.differs++; s.differs < tries {
		return nil
	}
	return difference(what, ours, theirs)
}

// otherScreens is differ for what is seen at one offset, unless the next look at
// that shows something else by itself.
func (s *subject) otherScreens(ours, theirs View) error {
	again := s.ours.Offset == ours.Offset && s.ours.Sum != ""
	if again && (s.ours.Sum != ours.Sum || s.theirs.Sum != theirs.Sum) && ours.Offset > 0 {
		s.ask.From, s.ask.To = 0, ours.Offset
		if s.ask.To > maxOutput {
			s.ask.From = s.ask.To - maxOutput
		}
		return nil
	}
	s.ours, s.theirs = ours, theirs
	if s.differs++; s.differs < screenTries {
		return nil
	}
	return difference("its screen", ours, theirs)
}

func difference(what string, ours, theirs View) error {
	return &Difference{Session: ours.Session, Offset: max(ours.Offset, theirs.Offset), What: what}
}
