package screen

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/vt/vttest"
)

// BenchmarkChangesBytes compares the bytes of changes with those of polling the screen as text, for
// a build and an editor, asked after each piece of output. On 2026-11-23 the ratio was 4.4 for
// the build and 2.5 for the editor.
func BenchmarkChangesBytes(b *testing.B) {
	home := b.TempDir()
	var source []byte
	for i := range 200 {
		source = fmt.Appendf(source, "\tline%d := value(%d)\n", i, i)
	}
	testkit.Must(b, os.WriteFile(home+"/text.go", source, 0o600))
	build := `i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo "  CC      supervisor/internal/part$((i%17))/object$i.o"; [ $((i%25)) = 0 ] && printf '[%3d%%] linking\r' $((i/4)); done; echo; echo ok`
	for _, tt := range []struct {
		name  string
		piece int // bytes of output between two requests
		argv  []string
		keys  []vttest.Act
	}{
		{"build", 120, []string{"sh", "-c", build}, nil},
		{"editor", 60, []string{"vim", "-u", "NONE", "-i", "NONE", "-N", "-n", home + "/text.go"}, []vttest.Act{
			{Wait: "line0"}, {Send: "ohello"}, {Send: " world"}, {Send: "\x1b"}, {Send: "jjjj"}, {Send: "dd"}, {Send: "\x06"}, {Send: "A // comment\x1b"}, {Send: "/line77\r"}, {Send: "x"}, {Send: "u"}, {Send: ":q!\r"},
		}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			p := vttest.Program{Argv: tt.argv, Script: tt.keys, Cols: 80, Rows: 24, Dir: home}
			p.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm-256color", "LANG=C.UTF-8"}
			answering := New(protocol.Size{Cols: 80, Rows: 24}, 1000)
			p.Answer = func(output []byte) []byte {
				answering.Write(output)
				return answering.Replies()
			}
			output := vttest.Record(b, p)
			for b.Loop() {
				changed, polled, requests := changesBytes(b, output, tt.piece)
				b.ReportMetric(float64(changed), "changes-bytes")
				b.ReportMetric(float64(polled), "screen-bytes")
				b.ReportMetric(float64(polled)/float64(changed), "ratio")
				b.ReportMetric(float64(requests), "requests")
			}
		})
	}
}

// changesBytes returns the bytes of all replies to changes, and of all screens, if a client asks after
// each piece of output.
func changesBytes(b *testing.B, output []byte, piece int) (changed, polled, requests int) {
	s := New(protocol.Size{Cols: 80, Rows: 24}, 1000)
	var has *ReaderMark
	size := func(v any) int {
		data, err := json.Marshal(v)
		testkit.Must(b, err)
		return len(data)
	}
	for part := range slices.Chunk(output, piece) {
		s.Write(part)
		c := s.Changes(has, protocol.DefaultChangesBytes)
		has = &c.Mark
		content := c.Content(nil)
		content.Mark = make([]byte, 22) // has the length of a session's mark
		changed += size(content)
		shown, _ := s.View(0).Content(protocol.ScreenSpec{})
		shown.Instance = "0123456789abcdef"
		polled += size(shown)
		requests++
	}
	return changed, polled, requests
}
