package policyhost

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
)

// pipes creates the pipes for the program's standard streams, and returns the program's ends.
func (p *program) pipes() (programEnds [3]*os.File, err error) {
	for i, pipe := range []struct {
		proxyEnd **os.File
		reads    bool // the program reads from the pipe
	}{{&p.stdin, true}, {&p.stdout, false}, {&p.stderr, false}} {
		r, w, err := os.Pipe()
		if err != nil {
			p.closePipes()
			for _, f := range programEnds[:i] {
				_ = f.Close()
			}
			return programEnds, err
		}
		*pipe.proxyEnd, programEnds[i] = r, w
		if pipe.reads {
			*pipe.proxyEnd, programEnds[i] = w, r
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = programEnds[0], programEnds[1], programEnds[2]
	return programEnds, nil
}

func (p *program) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// maxHello is the largest handshake in bytes; the certificate in it has about 1 KiB.
const maxHello = 16 << 10

// A hello holds the needed fields of the handshake line core|version|network|address|….
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

// readStdout passes the first line to the library. The output after it goes to the log.
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
	_, _ = io.Copy(l, r) // ends at the end of the stream or at the drain deadline
	l.end()
}
