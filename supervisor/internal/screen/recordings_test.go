package screen

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt/vttest"
)

// The output of real programs continues correctly on a screen that was saved and restored at any offset.
func TestRestoreRecordings(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.go")
	var lines []byte
	for i := range 200 {
		lines = fmt.Appendf(lines, "%d\tfunc line%d() string { return \"漢字 and é\" }\n", i, i)
	}
	if err := os.WriteFile(text, lines, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []vttest.Program{
		{Argv: []string{"vim", "-u", "NONE", "-i", "NONE", "-N", "-n", text}, Script: []vttest.Act{
			{Wait: "line0"}, {Send: ":syntax on | set number\r"}, {Send: "ohello 漢字\x1b"}, {Send: "\x06"}, {Send: ":split\r"}, {Send: ":q!\r"}, {Send: ":q!\r"},
		}},
		{Argv: []string{"less", "-N", text}, Script: []vttest.Act{{Wait: "line0"}, {Send: " "}, {Send: "/line15\r"}, {Send: "b"}, {Send: "q"}}},
		{Argv: []string{"htop", "--delay=10"}, Script: []vttest.Act{{Wait: "PID"}, {Send: "\x1b[B"}, {Send: "q"}}},
		{Argv: []string{"mc", "-u"}, Script: []vttest.Act{{Wait: "Quit"}, {Send: "\x1b[B"}, {Send: "\x1b[21~"}}},
		{Argv: []string{"ls", "-la", "--color=always", "/usr/bin", "/dev"}},
	} {
		t.Run(p.Argv[0], func(t *testing.T) {
			t.Logf("HOLDFAST_SEED=%d", seed)
			home := t.TempDir()
			p.Cols, p.Rows, p.Dir = 80, 24, home
			p.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm-256color", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "SHELL=/bin/sh"}
			s := New(protocol.Size{Cols: p.Cols, Rows: p.Rows}, 100)
			p.Answer = func(output []byte) []byte {
				s.Write(output)
				return s.Replies()
			}
			output := vttest.Record(t, p)
			r := rand.New(rand.NewPCG(seed, 0))
			for range 4 {
				k := r.IntN(len(output))
				c := run{size: protocol.Size{Cols: 80, Rows: 24}, lines: 1000, step: 1 + r.IntN(9000), pack: r.IntN(2) == 0}
				c.before = []vttest.Step{{Write: output[:k]}}
				for piece := range slices.Chunk(output[k:], max(1, len(output)/4)) {
					c.after = append(c.after, vttest.Step{Write: piece})
				}
				if d := c.check(t); d != "" {
					t.Fatalf("cut at %d of %d: %s", k, len(output), d)
				}
			}
		})
	}
}
