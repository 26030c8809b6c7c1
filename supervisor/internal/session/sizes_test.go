//go:build linux || darwin

package session

import (
	"cmp"
	"slices"
	"time"

	"holdfast/protocol"
)

// sizes is the plainest there is of whose size a session has: everybody who
// ever came, and a rule for each policy.
type sizes struct {
	policy  protocol.SizePolicy
	now     protocol.Size
	decider string
	came    []*sized // in the order of coming
}

// sized is a viewer as far as sizes go.
type sized struct {
	writer  string
	window  protocol.Size // zero where it has given none
	looks   bool          // it is read-only
	until   time.Time     // it was lost, and counts up to then
	present bool          // or lost
}

func (z *sizes) of(writer string) *sized {
	for _, v := range z.came {
		if v.writer == writer && v.present {
			return v
		}
	}
	return nil
}

// voters are those whose windows count.
func (z *sizes) voters() (all []*sized) {
	for _, v := range z.came {
		if v.votes() {
			all = append(all, v)
		}
	}
	return all
}

func (v *sized) votes() bool { return v.present && !v.looks && v.window != protocol.Size{} }

// wanted is the size by the policy, or what it is.
func (z *sizes) wanted() protocol.Size {
	size, ok := z.asked()
	if !ok {
		return z.now
	}
	return protocol.Size{Cols: max(20, size.Cols), Rows: max(5, size.Rows)}
}

// asked is the size that the windows ask for, and whether they do.
func (z *sizes) asked() (size protocol.Size, ok bool) {
	voters := z.voters()
	if len(voters) == 0 {
		return size, false
	}
	by := func(side func(protocol.Size) int) func(a, b *sized) int {
		return func(a, b *sized) int { return cmp.Compare(side(a.window), side(b.window)) }
	}
	cols := by(func(s protocol.Size) int { return s.Cols })
	rows := by(func(s protocol.Size) int { return s.Rows })
	switch z.policy {
	case protocol.SizeLatest:
		if v := z.of(z.decider); v != nil && v.votes() {
			return v.window, true
		}
	case protocol.SizeOwner:
		return voters[0].window, true
	case protocol.SizeSmallest:
		return protocol.Size{
			Cols: slices.MinFunc(voters, cols).window.Cols,
			Rows: slices.MinFunc(voters, rows).window.Rows,
		}, true
	case protocol.SizeLargest:
		return protocol.Size{
			Cols: slices.MaxFunc(voters, cols).window.Cols,
			Rows: slices.MaxFunc(voters, rows).window.Rows,
		}, true
	}
	return size, false
}

// free reports whether v may decide without having typed.
func (z *sizes) free(v *sized) bool {
	now := z.of(z.decider)
	return now == nil || !now.votes() && v.votes()
}

func (z *sizes) decide(v *sized) {
	if !v.looks {
		z.decider = v.writer
	}
}

func (z *sizes) attach(writer string, window protocol.Size, looks, fresh bool) {
	v := z.of(writer)
	if v == nil {
		v = &sized{writer: writer, present: true}
		z.came = append(z.came, v)
	}
	v.window, v.looks, v.until = window, looks, time.Time{}
	if z.decider == "" || fresh && z.free(v) {
		z.decide(v)
	}
	if fresh {
		z.now = z.wanted()
	}
}

// stolen is followed by the thief's attach, detached by nothing.
func (z *sizes) stolen(writer string)   { z.of(writer).present = false }
func (z *sizes) detached(writer string) { z.stolen(writer); z.now = z.wanted() }

func (z *sizes) lost(writer string) {
	z.of(writer).until = time.Now().Add(reconnectTime)
}

func (z *sizes) typed(writer string) {
	z.decide(z.of(writer))
	if z.policy == protocol.SizeLatest {
		z.now = z.wanted()
	}
}

func (z *sizes) resized(writer string, window protocol.Size) {
	v := z.of(writer)
	v.window = window
	if v.votes() && z.free(v) {
		z.decide(v)
	}
	z.now = z.wanted()
}

// passed is called when time has passed. It returns the sizes in between.
func (z *sizes) passed() (all []protocol.Size) {
	for {
		var next *sized
		for _, v := range z.came {
			if v.present && !v.until.IsZero() && !v.until.After(time.Now()) && (next == nil || v.until.Before(next.until)) {
				next = v
			}
		}
		if next == nil {
			return all
		}
		for _, v := range z.came {
			if v.present && v.until.Equal(next.until) && !v.until.IsZero() {
				v.present = false
			}
		}
		z.now = z.wanted()
		all = append(all, z.now)
	}
}
