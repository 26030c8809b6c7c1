package vttest

import "time"

// minimiseTime bounds the search: a case that is not yet the smallest is useful,
// a test that takes minutes to fail is not.
const minimiseTime = 30 * time.Second

// Minimise leaves out of the steps what is not needed for them to fail: first
// whole steps, then pieces of writes that begin at a control character, then
// single bytes.
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
			if !fails(cutUp) { // it takes a write that is not cut
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

// pieces cuts writes before every control character.
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

// reduce is delta debugging: it leaves out ever smaller runs of steps, until
// none can be left out or time is up.
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
			again = again && size == 1 // what was needed may not be any more
		}
	}
	return steps
}
