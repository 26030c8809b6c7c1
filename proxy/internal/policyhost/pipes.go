package policyhost

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
)

// pipes makes our ends, and returns those of the program.
func (p *program) pipes() (theirs [3]*os.File, err error) {
	for i, pipe := range []struct {
		ours  **os.File
		reads bool // the program does
	}{{&p.stdin, true}, {&p.stdout, false}, {&p.stderr, false}} {
		r, w, err := os.Pipe()
		if err != nil {
			p.closePipes()
			for _, f := range theirs[:i] {
				_ = f.Close()
			}
			return theirs, err
		}
		*pipe.ours, theirs[i] = r, w
		if pipe.reads {
			*pipe.ours, theirs[i] = w, r
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return theirs, nil
}

func (p *program) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// maxHello is the longest handshake; the certificate in it has about 1 KiB.
const maxHello = 16 << 10

// hello is what we need of the handshake, core|version|network|address|….
type hello struct{ core, version int }

func parseHello(line string) *hello {
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) < 4 {
		return nil
	}
	core, err1 := strconv.Atoi(parts[0])
	version, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return nil
	}
	return &hello{core, version}
}

// readStdout hands the first line to the library; what a program prints after it
// is for the log.
func (p *program) readStdout(to *io.PipeWriter) {
	defer p.stdout.Close()
	r := bufio.NewReaderSize(p.stdout, maxHello)
	line, err := r.ReadSlice('\n')
	text := string(line)
	p.printed.Store(&text)
	p.hello.Store(parseHello(text))
	_, _ = to.Write(line)
	_ = to.Close()
	if err == nil || err == bufio.ErrBufferFull {
		p.copyLines(r)
	}
}

func (p *program) readStderr() {
	defer p.stderr.Close()
	p.copyLines(p.stderr)
}

func (p *program) copyLines(r io.Reader) {
	l := p.says.lines()
	_, _ = io.Copy(l, r) // to its end, or to drain
	l.end()
}
