//go:build linux

package vm

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

// The output of a generator is a function of the offset, so that the right screen at each offset is known. It
// is a sequence of chunks of the same length.
var (
	generated = flag.String("generate", "", "print this stream (numbers or drawing), and nothing else")
	named     = flag.String("name", "", "report the offset on the line to the outside under this name")
	paused    = flag.Duration("pause", 0, "the pause after each chunk")
	from      = flag.Int("from", 0, "the first chunk")
	until     = flag.Int("until", 0, "end before this offset, and wait")
	stepped   = flag.Bool("stepped", false, "read a line before each chunk but the first")
)

// linePath is the serial line to the program that runs the machine.
const linePath = "/dev/ttyS1"

// reportEvery is the shortest time between two reports of a generator.
const reportEvery = 20 * time.Millisecond

// streams are the kinds of output. chunk returns a chunk by number. The terminal adds the CR of each line.
var streams = map[string]struct {
	bytes int // of each chunk
	chunk func(n int) []byte
}{
	"numbers": {1000 * lineBytes, numbers},
	"drawing": {8 << 10, drawing},
}

const lineBytes = 10

// numbers returns 1,000 lines with their numbers.
func numbers(n int) []byte {
	var p []byte
	for i := range 1000 {
		p = fmt.Appendf(p, "%08d\r\n", 1000*n+i)
	}
	return p
}

// drawing returns output that uses all features of a terminal. Its beginning resets the terminal, so that the
// screen depends on this chunk alone.
func drawing(n int) []byte {
	const length = 8 << 10
	r := rand.New(rand.NewPCG(uint64(n), 3))
	p := fmt.Appendf(nil, "\x1b[?1049l\x1bc\x1b[3J\x1b]2;chunk %d\x07", n)
	for len(p) < length-200 {
		row, col := 1+r.IntN(24), 1+r.IntN(80)
		switch r.IntN(12) {
		case 0:
			p = fmt.Appendf(p, "\x1b[%d;%dH", row, col)
		case 1:
			p = fmt.Appendf(p, "\x1b[%d;%d;%dm", r.IntN(2), 30+r.IntN(8), 40+r.IntN(8))
		case 2:
			p = fmt.Appendf(p, "\x1b[%d%c", r.IntN(3), "JK"[r.IntN(2)])
		case 3:
			p = fmt.Appendf(p, "\x1b[%d%c", 1+r.IntN(4), "LMP@XST"[r.IntN(7)])
		case 4:
			p = fmt.Appendf(p, "\x1b[%d;%dr", 1+row/2, 1+row/2+5)
		case 5:
			p = fmt.Appendf(p, "\x1b[?1049%c", "hl"[r.IntN(2)])
		case 6:
			p = append(p, "語 é ✓ 🙂 "...)
		case 7:
			p = append(p, "\x1b7 saved \x1b[5;5H elsewhere \x1b8"...)
		case 8:
			p = append(p, "\x1b[r\x1b[m"...)
		case 9:
			p = append(p, bytes.Repeat([]byte("wrapped "), 3+r.IntN(15))...)
		default:
			p = fmt.Appendf(p, "line %d of chunk %d\r\n", r.IntN(1000), n)
		}
	}
	return append(p, strings.Repeat(".", length-len(p))...)
}

// generate prints a stream without end, or until the offset until.
func generate() error {
	s := streams[*generated]
	line := os.Stderr
	if *named != "" {
		var err error
		if line, err = os.OpenFile(linePath, os.O_WRONLY, 0); err != nil {
			return err
		}
	}
	steps := bufio.NewReader(os.Stdin)
	var reported time.Time
	for n := *from; ; n++ {
		if *stepped && n > *from {
			if _, err := steps.ReadString('\n'); err != nil {
				return err
			}
		}
		p, end := s.chunk(n), (n+1)*s.bytes
		if *until > 0 && end > *until {
			p, end = p[:len(p)-(end-*until)], *until
		}
		if _, err := os.Stdout.Write(bytes.ReplaceAll(p, []byte("\r\n"), []byte("\n"))); err != nil {
			return err
		}
		if *named != "" && time.Since(reported) >= reportEvery {
			if _, err := fmt.Fprintf(line, "at %s %d\n", *named, end); err != nil {
				return err
			}
			reported = time.Now()
		}
		if end == *until {
			time.Sleep(time.Hour) // the test ends this process
		}
		time.Sleep(*paused)
	}
}
