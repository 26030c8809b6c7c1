//go:build linux || darwin

package pty

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// answerTime is how long the file systems of a program and its directory may take to answer.
	answerTime = 5 * time.Second
	// maxSearches bounds the searches at the same time. A search ends only if the file system
	// answers, and until then it takes a thread.
	maxSearches = 256
	// maxScripts is how many scripts may be each other's interpreter, as in Linux.
	maxScripts = 5
)

// A finder finds programs before they are started. It exists because syscall.ForkExec waits, with
// syscall.ForkLock held, until the child has loaded its program. If the file system of the program
// does not answer, as that of an NFS or FUSE server that has died, no other child could be started,
// and no file could be opened that is close-on-exec. So the finder opens and reads in another
// goroutine all that the child will, and gives up if that takes too long.
//
// A small window remains: the file system may stop answering after the search.
type finder struct {
	within time.Duration
	slots  chan struct{}

	mu      sync.Mutex
	running map[string]*search
}

// A search is that for one program. Its result is valid after done is closed.
type search struct {
	done chan struct{}
	path string
	err  error
}

var programs = newFinder(answerTime)

func newFinder(within time.Duration) *finder {
	return &finder{within: within, slots: make(chan struct{}, maxSearches), running: make(map[string]*search)}
}

// find returns the path of spec's program. Errors: those of lookPath, and ErrNoAnswer. Searches
// for the same program at the same time are one, so that many requests for a program whose file
// system does not answer take only one thread.
func (f *finder) find(spec Spec) (string, error) {
	late := time.NewTimer(f.within)
	defer late.Stop()
	for {
		s, isOwn := f.join(spec)
		if isOwn {
			select {
			case f.slots <- struct{}{}:
				go f.run(s, spec)
			case <-late.C:
				f.finish(s, spec, "", noAnswer(spec))
			}
		}
		select {
		case <-s.done:
			if isOwn || s.err == nil { // an earlier search may have missed a program that was made meanwhile
				return s.path, s.err
			}
		case <-late.C:
			return "", noAnswer(spec)
		}
	}
}

// join returns the search for spec's program that is running, or a new one, which the caller must
// run or finish.
func (f *finder) join(spec Spec) (s *search, isOwn bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.running[searchKey(spec)]; s != nil {
		return s, false
	}
	s = &search{done: make(chan struct{})}
	f.running[searchKey(spec)] = s
	return s, true
}

func (f *finder) run(s *search, spec Spec) {
	path, err := lookPath(spec)
	if err == nil {
		readProgram(spec.Dir, path)
	}
	<-f.slots
	f.finish(s, spec, path, err)
}

func (f *finder) finish(s *search, spec Spec, path string, err error) {
	s.path, s.err = path, err
	f.mu.Lock()
	delete(f.running, searchKey(spec))
	f.mu.Unlock()
	close(s.done)
}

// searchKey returns a key that is the same for specs with the same program.
func searchKey(spec Spec) string {
	return strings.Join([]string{spec.Dir, nameOf(spec), childPath(spec.Env)}, "\x00")
}

func nameOf(spec Spec) string {
	if len(spec.Argv) == 0 {
		return ""
	}
	return spec.Argv[0]
}

func noAnswer(spec Spec) error {
	return fmt.Errorf("program %q in directory %q: %w", nameOf(spec), spec.Dir, ErrNoAnswer)
}

// readProgram opens the directory of a child, and reads the beginning of its program and of the
// interpreters of scripts. It ignores errors: a child may run a program that it must not read, and
// the start reports all others.
func readProgram(dir, path string) {
	if d, err := os.Open(cmp.Or(dir, ".")); err == nil {
		_ = d.Close()
	}
	for range maxScripts {
		if executable(path) != nil { // opening a pipe would wait for its other end
			return
		}
		file, err := os.Open(path)
		if err != nil {
			return
		}
		head := make([]byte, os.Getpagesize())
		n, _ := io.ReadFull(file, head)
		_ = file.Close()
		line, isScript := bytes.CutPrefix(head[:n], []byte("#!"))
		if !isScript {
			return
		}
		line, _, _ = bytes.Cut(line, []byte("\n"))
		words := bytes.Fields(line)
		if len(words) == 0 {
			return
		}
		path = inDir(dir, string(words[0]))
	}
}
