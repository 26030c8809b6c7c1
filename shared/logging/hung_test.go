//go:build unix

package logging

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// A disk that does not answer, here a pipe that nobody reads, does not stop the process. When it answers, it gets all
// lines.
func TestHungDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe.log")
	testkit.Must(t, syscall.Mkfifo(path, 0o600))
	log, closer, err := New(Options{Path: path})
	testkit.Must(t, err)
	pipe, err := os.Open(path)
	testkit.Must(t, err)
	const count = 10
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		for i := range count { // the first line has no room in the pipe
			log.Info().Int("n", i).Str("text", strings.Repeat("x", 100<<10)).Send()
		}
	}()
	select {
	case <-logged:
	case <-time.After(10 * time.Second):
		t.Error("the process waits for the disk")
	}
	lines := bufio.NewReader(pipe)
	for i := range count {
		line, err := lines.ReadString('\n')
		if err != nil || !strings.Contains(line, `"n":`+string(rune('0'+i))) {
			t.Fatalf("line %d is %.100q, %v", i, line, err)
		}
	}
	if err := closer.Close(); err != nil {
		t.Error(err)
	}
}

// If too many lines wait, the further ones are dropped, and the log tells how many they were.
func TestDroppedLines(t *testing.T) {
	r, w := io.Pipe()
	q := newQueue(w)
	const dropped = 5
	for i := range 1 + maxLines + dropped {
		if n, err := q.Write([]byte("line\n")); n != 5 || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
		if i == 0 {
			testkit.Eventually(t, 10*time.Second, func() bool { return len(q.lines) == 0 }, "the goroutine of the queue has taken the first line")
		}
	}
	lines := bufio.NewScanner(r)
	seen := 0
	for lines.Scan() && lines.Text() == "line" {
		seen++
	}
	if want := `{"level":"warn","count":5,"message":"lines of the log dropped, because they could not be written"}`; seen == 0 || lines.Text() != want {
		t.Errorf("after %d lines: %q, want %q", seen, lines.Text(), want)
	}
	for seen < 1+maxLines && lines.Scan() {
		seen++
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}
