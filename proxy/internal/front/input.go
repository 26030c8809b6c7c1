package front

import (
	"bytes"
	"context"
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

	reading sync.Mutex // held while a read of the file is pending, which may be for ever
	from    io.Reader  // what own has returned for file, from the first read on

	mu     sync.Mutex // never held while a read is pending, so that unread can change meanwhile
	unread []byte     // input that comes before all that the file has
}

// read reads input. It returns errGone if gone is closed before input came. gone may be nil.
func (i *input) read(p []byte, gone <-chan struct{}) (int, error) {
	if n := i.takeUnread(p, gone); n > 0 { // the read of a reader that has gone may still be pending
		return n, nil
	}
	i.reading.Lock()
	defer i.reading.Unlock()
	if n := i.takeUnread(p, gone); n > 0 { // the read that was pending has put its input there
		return n, nil
	}
	if isClosed(gone) {
		return 0, errGone
	}
	if i.from == nil {
		i.from = own(i.file)
	}
	n, err := i.from.Read(p)
	if isClosed(gone) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.unread = append(i.unread, p[:n]...) // behind the input that became unread during the read
		return 0, errGone
	}
	return n, err
}

// takeUnread moves unread input to p, and returns its length. It moves nothing if gone is closed.
func (i *input) takeUnread(p []byte, gone <-chan struct{}) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	if isClosed(gone) {
		return 0
	}
	n := copy(p, i.unread)
	i.unread = i.unread[n:]
	return n
}

// isClosed reports whether c is closed. It returns false if c is nil.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// ReadLine returns the next line of the input, without its end, or the error of ctx if ctx is done before the line
// has come. The terminal must not be raw.
func (t *Terminal) ReadLine(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1) // buffered, because the read may end after ctx
	go func() {
		line, err := t.readLine(ctx.Done())
		read <- result{line, err}
	}()
	select {
	case r := <-read:
		return r.line, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (t *Terminal) readLine(gone <-chan struct{}) (string, error) {
	var line []byte
	buf := make([]byte, 1<<10)
	for len(line) < maxTypedLine {
		n, err := t.in.read(buf, gone)
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
