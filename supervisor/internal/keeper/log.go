//go:build linux || darwin

package keeper

import "time"

// A logger hands lines on from a goroutine of its own: whoever reads them may
// have stopped. It drops what does not fit.
type logger struct {
	lines chan string
	ended chan struct{}
}

func newLogger(write func(string)) *logger {
	l := &logger{make(chan string, 64), make(chan struct{})}
	go func() {
		defer close(l.ended)
		for line := range l.lines {
			write(line)
		}
	}()
	return l
}

func (l *logger) print(line string) {
	select {
	case l.lines <- line:
	default:
	}
}

// flush waits for the last words, but not for long. Nothing is printed after it.
func (l *logger) flush() {
	close(l.lines)
	select {
	case <-l.ended:
	case <-time.After(time.Second):
	}
}
