package chaos

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"holdfast/protocol"
)

const (
	// lineLen is the length of a line that a probe prints, in bytes.
	lineLen = 64
	// printEvery and linesAtOnce make a probe print 25,600 bytes a second. A ring of 1 MiB then has the output of 40 s.
	printEvery  = 10 * time.Millisecond
	linesAtOnce = 4
	// maxBefore is how many bytes a terminal may receive before the first line: the snapshot of an empty screen.
	maxBefore = 64 << 10
	// maxTyped is how many bytes an app may type into a probe.
	maxTyped = 16 << 20
)

// A probe is a session that prints numbered lines from the first key on, stores each key, and exits at the stop key.
type probe struct {
	id   protocol.SessionID
	file string // the keys that arrived; file+".end" has the number of bytes that were printed
	seed uint64
	code int // the exit code

	typed    bytes.Buffer // reported
	before   []byte       // received before the first line
	received int          // bytes of the output, as far as they are right
	wrong    string       // the first wrong output, or ""
	exits    []int        // reported
}

// newProbe returns the nth probe of a run.
func newProbe(seed uint64, n int, dir string) *probe {
	id := fmt.Sprintf("chaos-%x-%d", seed, n+1)
	own := rand.New(rand.NewPCG(seed, uint64(n)+1))
	return &probe{id: protocol.SessionID(id), file: filepath.Join(dir, id), seed: own.Uint64(), code: 1 + own.IntN(99)}
}

// argv returns the command of the probe. A program that runs on a terminal in raw mode sends and receives each byte
// unchanged.
func (p *probe) argv(program string) []string {
	return []string{"/bin/sh", "-c", `stty raw -echo && exec "$@"`, "sh", program, "chaos",
		"--probe", p.file, "--seed", strconv.FormatUint(p.seed, 10), "--code", strconv.Itoa(p.code)}
}

// transcript returns n bytes of a probe's output from an offset on.
func transcript(seed uint64, offset, n int) []byte {
	out := make([]byte, 0, n+2*lineLen)
	for number := offset / lineLen; len(out) < offset%lineLen+n; number++ {
		rnd := rand.NewPCG(seed, uint64(number))
		out = fmt.Appendf(out, "%012d %016x %016x %015x\r\n", number, rnd.Uint64(), rnd.Uint64(), rnd.Uint64()>>4)
	}
	return out[offset%lineLen:][:n]
}

// runProbe is the program of a probe.
func runProbe(in io.Reader, out io.Writer, file string, seed uint64) error {
	arrived, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	keys := make(chan error, 1)
	first := make(chan struct{})
	go func() { keys <- storeKeys(in, arrived, first) }()
	select {
	case <-first:
	case err := <-keys:
		return fmt.Errorf("the terminal ended before the first key: %w", err)
	}
	tick := time.NewTicker(printEvery)
	defer tick.Stop()
	for printed := 0; ; printed += linesAtOnce * lineLen {
		select {
		case err := <-keys:
			if err == nil {
				err = os.WriteFile(file+".end", []byte(strconv.Itoa(printed)), 0o600)
			}
			return err
		case <-tick.C:
		}
		if _, err := out.Write(transcript(seed, printed, linesAtOnce*lineLen)); err != nil {
			return err
		}
	}
}

// storeKeys stores the keys that arrive, until the stop key. It closes first at the first key.
func storeKeys(in io.Reader, arrived io.WriteCloser, first chan<- struct{}) error {
	piece := make([]byte, 4<<10)
	for isFirst := true; ; isFirst = false {
		n, err := in.Read(piece)
		if err != nil {
			return err
		}
		if _, err := arrived.Write(piece[:n]); err != nil {
			return err
		}
		if isFirst {
			close(first)
		}
		if bytes.Contains(piece[:n], []byte(stopKey)) {
			return arrived.Close()
		}
	}
}

// take takes a report of the app about this probe.
func (p *probe) take(rep report) error {
	if p.typed.Len()+len(rep.Typed) > maxTyped {
		return fmt.Errorf("the app typed more than %d bytes into %s", maxTyped, p.id)
	}
	p.typed.WriteString(rep.Typed)
	if rep.ExitCode != nil && len(p.exits) < 2 { // two exits are a fault already
		p.exits = append(p.exits, *rep.ExitCode)
	}
	p.receive(rep.Received)
	return nil
}

// receive compares output that the app received with the transcript.
func (p *probe) receive(data []byte) {
	if p.received == 0 {
		data = append(p.before, data...)
		first := transcript(p.seed, 0, lineLen)
		at := bytes.Index(data, first)
		if at < 0 {
			p.before = data
			if len(data) > maxBefore && p.wrong == "" {
				p.wrong = fmt.Sprintf("the first %d bytes received have no first line", len(data))
			}
			p.before = p.before[max(0, len(data)-maxBefore):]
			return
		}
		p.before, data = nil, data[at:]
	}
	want := transcript(p.seed, p.received, len(data))
	if p.wrong == "" && !bytes.Equal(data, want) {
		same := 0
		for data[same] == want[same] {
			same++
		}
		p.received += same
		p.wrong = fmt.Sprintf("at byte %d the app received %.50q instead of %.50q", p.received, data[same:], want[same:])
	}
	if p.wrong == "" {
		p.received += len(data)
	}
}

// judge compares the reports with the files of the probe.
func (p *probe) judge(v *Verdict) {
	wrong := func(format string, args ...any) {
		v.Errors = append(v.Errors, string(p.id)+": "+fmt.Sprintf(format, args...))
	}
	arrived, err := os.ReadFile(p.file)
	if err != nil {
		wrong("its keys cannot be read: %v", err)
	}
	printed := 0
	text, err := os.ReadFile(p.file + ".end")
	if err == nil {
		printed, err = strconv.Atoi(string(text))
	}
	switch {
	case err != nil:
		wrong("it did not exit at the stop key: %v", err)
	case len(p.exits) != 1 || p.exits[0] != p.code:
		wrong("it exited once, with %d, and the app reports the exits %d", p.code, p.exits)
	}
	if err == nil {
		v.Exits.Real++
	}
	v.Exits.Reported += len(p.exits)
	v.Keys.Sent += p.typed.Len()
	v.Keys.Arrived += len(arrived)
	if !bytes.Equal(arrived, p.typed.Bytes()) {
		wrong("the app typed %d bytes, %d arrived, and the first %d are the same", p.typed.Len(), len(arrived), commonPrefix(arrived, p.typed.Bytes()))
	}
	v.Output.Printed += printed
	v.Output.Received += p.received
	switch {
	case p.wrong != "":
		wrong("%s", p.wrong)
	case err == nil && p.received != printed:
		wrong("it printed %d bytes, and the app received %d", printed, p.received)
	}
}

// commonPrefix returns the number of bytes that two texts have in common at their beginnings.
func commonPrefix(a, b []byte) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
