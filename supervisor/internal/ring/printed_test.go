//go:build linux

package ring

import (
	"fmt"
	"os"
	"sync/atomic"
)

// lineBytes is the length of a printed line: its number, and characters of two, three and four bytes.
const lineBytes = 32

func appendLine(b []byte, i uint64) []byte { return fmt.Appendf(b, "%021d é→𝄞\n", i) }

// A printer prints lines until it is stopped.
type printer struct {
	stop  atomic.Bool
	done  chan struct{}
	total uint64
}

func startPrinting(to *os.File) *printer {
	p := &printer{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer to.Close()
		var b []byte
		for i := uint64(0); !p.stop.Load(); {
			b = b[:0]
			for range 100 {
				b = appendLine(b, i)
				i++
			}
			n, err := to.Write(b)
			p.total += uint64(n)
			if err != nil {
				return
			}
		}
	}()
	return p
}

// end stops the printer and returns how many bytes it has printed. Its output must have a reader.
func (p *printer) end() uint64 {
	p.stop.Store(true)
	<-p.done
	return p.total
}

// checkPrinted compares the ring's bytes in [from, to) with the lines of a printer.
func checkPrinted(r *Ring, from, to uint64) error {
	got := make([]byte, to-from)
	if _, err := r.ReadAt(got, from); err != nil {
		return err
	}
	return checkBytes(got, from)
}

func checkBytes(got []byte, from uint64) error {
	line := make([]byte, 0, lineBytes)
	for len(got) > 0 {
		line = appendLine(line[:0], from/lineBytes)
		want := line[from%lineBytes:]
		n := min(len(want), len(got))
		if string(got[:n]) != string(want[:n]) {
			return fmt.Errorf("at offset %d is %q, want %q", from, got[:n], want[:n])
		}
		got, from = got[n:], from+uint64(n)
	}
	return nil
}
