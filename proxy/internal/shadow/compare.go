package shadow

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/internal/linkclient"
)

const (
	// tries is how often two views of a session may differ before the difference counts, because
	// a resize, an exit or a byte of output may come between the two.
	tries = 3
	// movedTries is the limit for screens at different offsets. It is lower, because a session
	// that prints between two views usually continues to print.
	movedTries = 2
	// maxOutput is how many bytes of output are compared if a session's screens are at different
	// offsets. It is far less than a ring holds.
	maxOutput = 64 << 10
	// chunkLen is how many sessions are viewed before the extent's time is checked. It is at most
	// MaxAsks.
	chunkLen = 4 * atOnce
)

// An Extent bounds a comparison, so that a handoff beside many sessions takes no longer than one
// beside a few. The zero value compares every session, however long that takes.
type Extent struct {
	Sessions int           // the number of sessions, which are chosen at random
	Time     time.Duration // when it is over, no further views are requested
}

// Sample is the extent of a comparison unless all sessions are asked for. A mistake of a proxy
// that shows in one session in twenty is found with a probability of 96 % (1 - 0.95^64). The time
// is a tenth of the time that a handoff may take for its preparation (handoff.Timeout).
var Sample = Extent{Sessions: 64, Time: time.Second}

// A Report counts the sessions that were compared, by the way of their comparison.
type Report struct {
	Sessions int // compared by their screens
	ByOutput int // compared by their output, because they printed all the time
	Unseen   int // not compared, because a view was not possible
	Gone     int // ended meanwhile
	Skipped  int // outside the extent
}

// A Difference is a session that two proxies show differently.
type Difference struct {
	Session protocol.SessionID
	Offset  uint64
	What    string // the property that differs, without its values
}

func (d *Difference) Error() string {
	return fmt.Sprintf("session %s at offset %d: the two proxies differ in %s", d.Session, d.Offset, d.What)
}

// Unwrap returns the error code internal, because one of the two proxies is wrong.
func (d *Difference) Unwrap() error { return protocol.Errorf(protocol.CodeInternal, "%v", d) }

// A comparison is a comparison in progress.
type comparison struct {
	link   *linkclient.Client
	remote func(context.Context, []Ask) ([]View, error)
	report Report
}

// A subject is a session that is being compared. Each attempt without a result is counted by its
// reason.
type subject struct {
	ask                                Ask // the next request
	movedCount, unseen, differentCount int
}

// Compare views live sessions and lets the other proxy view them, too. It returns a *Difference
// for the first session of which the two views differ. remote is called at the same time as the
// local view, with up to chunkLen asks. It must return when its context ends.
//
// The errors are a *Difference, internal if the other proxy answers for another session than it
// was asked about, and those of Look and of remote.
func Compare(ctx context.Context, link *linkclient.Client, remote func(context.Context, []Ask) ([]View, error), extent Extent) (Report, error) {
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
	c := &comparison{link: link, remote: remote}
	if n := extent.Sessions; n > 0 && len(subjects) > n {
		rand.Shuffle(len(subjects), func(i, j int) { subjects[i], subjects[j] = subjects[j], subjects[i] })
		c.report.Skipped, subjects = len(subjects)-n, subjects[:n]
	}
	begun := time.Now()
	for some := range slices.Chunk(subjects, chunkLen) {
		for {
			if extent.Time > 0 && time.Since(begun) > extent.Time {
				some = c.skip(some)
			}
			if len(some) == 0 {
				break
			}
			if some, err = c.round(ctx, some); err != nil {
				return c.report, err
			}
		}
	}
	return c.report, nil
}

// skip counts the sessions that the extent's time does not suffice for, and returns the others:
// those of which the views differed, which a few more views settle.
func (c *comparison) skip(some []*subject) (differing []*subject) {
	for _, s := range some {
		if s.differentCount > 0 {
			differing = append(differing, s)
		} else {
			c.report.Skipped++
		}
	}
	return differing
}

// round views each subject once, and returns the subjects that need another attempt.
func (c *comparison) round(ctx context.Context, some []*subject) (unsettled []*subject, err error) {
	asks := make([]Ask, len(some))
	for i, s := range some {
		asks[i] = s.ask
	}
	local, remote, err := c.look(ctx, asks)
	if err != nil {
		return nil, err
	}
	for i, s := range some {
		settled, err := c.judge(s, local[i], remote[i])
		if err != nil {
			return nil, err
		}
		if !settled {
			unsettled = append(unsettled, s)
		}
	}
	return unsettled, nil
}

// look lets both proxies view the sessions at the same time, because fewer sessions print between
// two views if the views are close together.
func (c *comparison) look(ctx context.Context, asks []Ask) (local, remote []View, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var other sync.WaitGroup
	other.Go(func() {
		var err error
		if remote, err = c.remote(ctx, slices.Clone(asks)); err != nil {
			fail(fmt.Errorf("the other proxy's look: %w", err))
		}
	})
	if local, err = Look(ctx, c.link, asks); err != nil {
		fail(err)
	}
	other.Wait()
	if err := context.Cause(ctx); err != nil { // the error that came first
		return nil, nil, err
	}
	return local, remote, checkAnswer(asks, remote)
}

// checkAnswer returns an error unless the views belong to the asks.
func checkAnswer(asks []Ask, views []View) error {
	if len(views) != len(asks) {
		return protocol.Errorf(protocol.CodeInternal, "the other proxy answers %d asks with %d views", len(asks), len(views))
	}
	for i, v := range views {
		if v.Session != asks[i].Session {
			return protocol.Errorf(protocol.CodeInternal, "the other proxy was asked for session %s, and tells of %.80q", asks[i].Session, string(v.Session))
		}
	}
	return nil
}

// judge reports whether two views settle the comparison of a session. If not, it prepares the
// next request.
func (c *comparison) judge(s *subject, local, remote View) (settled bool, err error) {
	ofOutput := s.ask.ofOutput()
	switch {
	case local.Gone && remote.Gone:
		c.report.Gone++
		return true, nil
	case local.Gone != remote.Gone:
		return false, s.differ("whether it is there", local, remote)
	case local.Unseen || remote.Unseen:
		return c.unseen(s), nil
	case local.Instance != remote.Instance:
		return false, s.differ("its instance", local, remote)
	case local.Offset != remote.Offset && !ofOutput:
		s.move(local.Offset, remote.Offset)
		return false, nil
	case ofOutput && (local.Offset != remote.Offset || local.Sum != remote.Sum): // output between two offsets never changes, so one difference is enough
		return false, difference(fmt.Sprintf("the output since offset %d", s.ask.From), local, remote)
	case ofOutput:
		c.report.ByOutput++
		return true, nil
	case local.Size != remote.Size:
		return false, s.differ("its size", local, remote)
	case local.Sum != remote.Sum:
		return false, s.differ("its screen", local, remote)
	}
	c.report.Sessions++
	return true, nil
}

func (c *comparison) unseen(s *subject) (settled bool) {
	s.askScreen()
	if s.unseen++; s.unseen < tries {
		return false
	}
	c.report.Unseen++
	return true
}

// askScreen makes the next request one for the screen.
func (s *subject) askScreen() { s.ask.From, s.ask.To = 0, 0 }

// move counts screens at different offsets. After movedTries attempts the next request is for the
// output up to the later offset, which does not change any more.
func (s *subject) move(a, b uint64) {
	if s.movedCount++; s.movedCount < movedTries {
		return
	}
	s.ask.From, s.ask.To = min(a, b), max(a, b)
	if s.ask.To-s.ask.From > maxOutput {
		s.ask.From = s.ask.To - maxOutput
	}
}

// differ counts a difference, and returns a Difference after the last try.
func (s *subject) differ(property string, local, remote View) error {
	s.askScreen()
	if s.differentCount++; s.differentCount < tries {
		return nil
	}
	return difference(property, local, remote)
}

func difference(property string, local, remote View) error {
	return &Difference{Session: local.Session, Offset: max(local.Offset, remote.Offset), What: property}
}
