package front

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
)

// errGone is the error of a read if its reader has gone before input came.
var errGone = errors.New("the reader of the terminal has gone")

// maxTypedLine bounds a line that ReadLine returns, in bytes.
const maxTypedLine = 4 << 10

// An input is the input of a command. Its readers follow one another, and none loses input: a read of a
// terminal cannot be interrupted, so the read of a reader that has gone ends with the next key, which
// then belongs to the next reader.
type input struct {
	file *os.File

	mu     sync.Mutex // held while a read is pending
	from   io.Reader  // what own has returned for file, from the first read on
	unread []byte     // input that comes before all that the file has
}

// read reads input. It returns errGone if gone is closed before input came. gone may be nil.
func (i *input) read(p []byte, gone <-chan struct{}) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	isGone := func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}
	if isGone() {
		return 0, errGone
	}
	if len(i.unread) > 0 {
		n := copy(p, i.unread)
		i.unread = i.unread[n:]
		return n, nil
	}
	if i.from == nil {
		i.from = own(i.file)
	}
	n, err := i.from.Read(p)
	if isGone() {
		i.unread = slices.Clone(p[:n])
		return 0, errGone
	}
	return n, err
}

// ReadLine returns the next line of the input, without its end. The terminal must not be raw.
func (t *Terminal) ReadLine() (string, error) {
	var line []byte
	buf := make([]byte, 1<<10)
	for len(line) < maxTypedLine {
		n, err := t.in.read(buf, nil)
		text, rest, isWhole := bytes.Cut(buf[:n], []byte("\n"))
		line = append(line, text...)
		if isWhole {
			t.Unread(slices.Clone(rest))
			return string(line), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", errors.New("the line is too long")
}
