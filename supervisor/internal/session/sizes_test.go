//go:build linux || darwin

package session

import (
	"cmp"
	"slices"
	"time"

	"holdfast/protocol"
)

// sizes is the plain model of a session's size: every viewer that ever attached, and a rule for each policy.
type sizes struct {
	policy  protocol.SizePolicy
	now     protocol.Size
	decider string
	came    []*sized // in the order in which they attached
}

// sized is a viewer, as far as sizes depend on it.
type sized struct {
	writer  string
	window  protocol.Size // zero if the viewer has sent none
	looks   bool          // the viewer is read-only
	until   time.Time     // the viewer was lost, and counts until this time
	present bool          // attached or lost
}

func (z *sizes) of(writer string) *sized {
	for _, v := range z.came {
		if v.writer == writer && v.present {
			return v
		}
	}
	return nil
}

// voters returns the viewers whose windows count.
func (z *sizes) voters() (all []*sized) {
	for _, v := range z.came {
		if v.votes() {
			all = append(all, v)
		}
	}
	return all
}

func (v *sized) votes() bool { return v.present && !v.looks && v.window != protocol.Size{} }

// wanted returns the size that the policy demands, or the present one.
func (z *sizes) wanted() protocol.Size {
	size, ok := z.asked()
	if !ok {
		return z.now
	}
	return protocol.Size{Cols: max(20, size.Cols), Rows: max(5, size.Rows)}
}

// asked returns the size that the windows demand, and whether they demand one.
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

// free reports whether v may decide the size without having sent input.
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

// stolen removes an evicted viewer. The attach that evicts it chooses the size afterwards.
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

// passed expires lost viewers after time has passed, and returns each size that the session had meanwhile.
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
