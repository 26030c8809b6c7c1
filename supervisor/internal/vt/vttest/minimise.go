package vttest

import "time"

// minimiseTime bounds the time of Minimise. A case that is not yet the smallest is useful, but
// a test should not take minutes to fail.
const minimiseTime = 30 * time.Second

// Minimise removes the parts of the steps that are not needed for fails to return true: first
// whole steps, then pieces of writes that begin at a control character, then single bytes.
func Minimise(steps []Step, fails func([]Step) bool) []Step {
	return minimise(steps, fails, time.Now().Add(minimiseTime))
}

func minimise(steps []Step, fails func([]Step) bool, deadline time.Time) []Step {
	for _, cut := range []func([]Step) []Step{nil, pieces, Bytes} {
		cutUp := steps
		if joined := Join(steps); fails(joined) {
			cutUp = joined
		}
		if cut != nil {
			cutUp = cut(cutUp)
			if !fails(cutUp) { // it fails only if the write is not cut
				continue
			}
		}
		steps = reduce(cutUp, fails, deadline)
	}
	if joined := Join(steps); fails(joined) {
		return joined
	}
	return steps
}

// pieces cuts writes before each control character.
func pieces(steps []Step) []Step {
	var cut []Step
	for _, s := range steps {
		if s.IsResize() {
			cut = append(cut, s)
			continue
		}
		start := 0
		for i := 1; i <= len(s.Write); i++ {
			if i == len(s.Write) || s.Write[i] < ' ' {
				cut = append(cut, Step{Write: s.Write[start:i]})
				start = i
			}
		}
	}
	return cut
}

// reduce removes ever smaller runs of steps (delta debugging), until none can be removed or
// the deadline has passed.
func reduce(steps []Step, fails func([]Step) bool, deadline time.Time) []Step {
	for size := (len(steps) + 1) / 2; size > 0; size /= 2 {
		for again := true; again; {
			again = false
			for at := 0; at < len(steps); {
				if time.Now().After(deadline) {
					return steps
				}
				less := append(append([]Step(nil), steps[:at]...), steps[min(at+size, len(steps)):]...)
				if fails(less) {
					steps, again = less, true
				} else {
					at += size
				}
			}
			again = again && size == 1 // a step that was necessary before may no longer be
		}
	}
	return steps
}
