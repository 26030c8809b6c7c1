package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
)

// An xterm is a real xterm.js in scripts/oracle/oracle.mjs. Its calls are frames of a letter, the number of a
// terminal, and arguments. If a call fails, the test fails.
type xterm struct {
	t      *testing.T
	stdin  io.WriteCloser
	stdout io.Reader
	errout *bytes.Buffer
}

// newXterm skips the test if xterm.js is not installed. If HOLDFAST_REQUIRE_ORACLE is 1, it fails the test
// instead.
func newXterm(t *testing.T) *xterm {
	t.Helper()
	dir := filepath.Join("..", "oracle")
	_, err := exec.LookPath("node")
	if _, err2 := os.Stat(filepath.Join(dir, "node_modules")); err == nil {
		err = err2
	}
	if err != nil && os.Getenv("HOLDFAST_REQUIRE_ORACLE") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("no xterm.js: %v; run npm ci in scripts/oracle", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*limit)
	cmd := exec.CommandContext(ctx, "node", "oracle.mjs")
	x := &xterm{t: t, errout: &bytes.Buffer{}}
	cmd.Dir, cmd.Stderr = dir, x.errout
	if x.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if x.stdout, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	return x
}

func (x *xterm) call(letter byte, args []byte) []byte {
	x.t.Helper()
	call := binary.BigEndian.AppendUint32(nil, uint32(2+len(args)))
	call = append(append(call, letter, 0), args...)
	_, err := x.stdin.Write(call)
	var head [5]byte
	if err == nil {
		_, err = io.ReadFull(x.stdout, head[:])
	}
	if err != nil {
		x.t.Fatalf("no answer of xterm.js to %c: %v", letter, err)
	}
	answer := make([]byte, binary.BigEndian.Uint32(head[:])-1)
	if _, err := io.ReadFull(x.stdout, answer); err != nil || head[4] != 0 {
		x.t.Fatalf("the answer of xterm.js to %c is %.1000s, %v", letter, answer, err)
	}
	return answer
}

// new replaces the terminal by an empty one.
func (x *xterm) new(cols, rows int) {
	x.t.Helper()
	x.call('N', fmt.Appendf(nil, `{"cols":%d,"rows":%d,"scrollback":%d,"unicode":"11"}`, cols, rows, historySeen))
}

func (x *xterm) write(p []byte) {
	x.t.Helper()
	for part := range slices.Chunk(p, 64<<10) {
		x.call('W', append(binary.BigEndian.AppendUint32(nil, uint32(len(part))), part...))
	}
}

// shows returns how the terminal differs from a session's screen, and from the lines of history that want
// contains.
func (x *xterm) shows(want *protocol.ScreenContent) error {
	x.t.Helper()
	var got struct {
		Title  string
		Normal struct {
			X, Y  int
			Lines []struct {
				Wrapped bool
				Cells   []struct {
					T string
					W int
				}
			}
		}
		Alternate *struct{}
	}
	if err := json.Unmarshal(x.call('S', nil), &got); err != nil {
		return err
	}
	var lines []string // wrapped rows are joined, as in a session's screen
	for _, l := range got.Normal.Lines {
		var text strings.Builder
		if k := len(lines); l.Wrapped && k > 0 {
			text.WriteString(lines[k-1])
			lines = lines[:k-1]
		}
		for _, c := range l.Cells {
			if c.W > 0 {
				text.WriteString(cmp.Or(c.T, " "))
			}
		}
		lines = append(lines, text.String())
	}
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" { // rows below the session's last line
		lines = lines[:len(lines)-1]
	}
	n := len(want.Lines) - 1 // the first line may be incomplete
	if len(lines) < n {
		return fmt.Errorf("xterm.js has %d lines, want %d", len(lines), n)
	}
	lines = lines[len(lines)-n:]
	for i, line := range lines {
		if line != want.Lines[i+1] {
			return fmt.Errorf("line %d of %d is %q, want %q", i, n, line, want.Lines[i+1])
		}
	}
	if c := want.Cursor; got.Normal.X != c.X || got.Normal.Y != c.Y || got.Title != want.Title || got.Alternate != nil || want.Alternate {
		return fmt.Errorf("the cursor is at %d, %d, want %d, %d; the title is %q, want %q",
			got.Normal.X, got.Normal.Y, c.X, c.Y, got.Title, want.Title)
	}
	return nil
}
