package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// recordingEnd returns the name of the only recording, and the offset of its end.
func (w *world) recordingEnd() (name string, end uint64) {
	w.T.Helper()
	var list []struct {
		Recording string
		End       uint64
	}
	testkit.Must(w.T, json.Unmarshal([]byte(w.Must("proxy", "recordings", "--json")), &list))
	if len(list) != 1 {
		return "", 0
	}
	return list[0].Recording, list[0].End
}

// counterOutput returns the first n bytes of a counter's output.
func counterOutput(n uint64) string {
	var b []byte
	for i := 0; uint64(len(b)) < n; i++ {
		b = fmt.Appendf(b, "%08d\r\n", i)
	}
	return string(b[:n])
}

// A session is recorded byte by byte until all programs are killed. The recording must report that its end is
// missing, and must show each of its moments. A store that fails must delay only the recorder, which must
// continue when the store works again, and the next proxy must continue the recording. HOLDFAST_LONG=1 also
// checks HOLDFAST_CUTS times that at most the last 5 s of output are missing.
func TestRecordings(t *testing.T) {
	t.Parallel()
	cuts := 1
	if isLong {
		cuts = number(t, "HOLDFAST_CUTS", 10)
	}
	for range cuts {
		dir := filepath.Join(t.TempDir(), "recordings")
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // in place of the directory, so that the store fails
			t.Fatal(err)
		}
		w := newWorld(t, "HOLDFAST_RECORDINGS="+dir)
		c := w.dial(client.Options{})
		loud := role("counter", "1s")
		loud.Labels = map[string]string{"record": "true"}
		children := []int{w.spawn(c, "loud", loud).PID, w.spawn(c, "unwanted", role("counter", "1s")).PID}
		printed := func() uint64 {
			s, err := c.SessionInfo(w.ctx(), "loud")
			testkit.Must(t, err)
			return s.OutputOffset
		}
		testkit.Eventually(t, limit, func() bool { return strings.Contains(w.Logs(), "recordings cannot be stored") }, "the log contains the error of the store")
		before := printed()
		testkit.Eventually(t, limit, func() bool { return printed() > before }, "the session continues to print")
		testkit.Must(t, os.Remove(dir))
		if isLong {
			w.Must("proxy", "--handoff")
		}
		name := ""
		testkit.Eventually(t, limit, func() bool {
			var end uint64
			name, end = w.recordingEnd()
			return end > before
		}, "the session is recorded")
		if !strings.Contains(name, "/loud@") {
			t.Errorf("the recording is %s", name)
		}

		type sample struct {
			at     time.Time
			offset uint64
		}
		samples := []sample{{time.Now(), printed()}}
		for end := time.Now().Add(time.Duration(rand.IntN(1000)) * time.Millisecond); time.Now().Before(end) || isLong && len(samples) < 60; time.Sleep(100 * time.Millisecond) {
			samples = append(samples, sample{time.Now(), printed()})
		}
		killed := time.Now()
		_ = c.Close()
		w.powerCut(children)

		_, end := w.recordingEnd()
		last := samples[len(samples)-1]
		lost := time.Duration(0) // the age of the oldest missing byte
		for _, s := range samples {
			if s.offset > end {
				lost = killed.Sub(s.at)
				break
			}
		}
		if isLong && lost > 5*time.Second {
			t.Errorf("the recording lacks output that was printed %v before the end", lost)
		}
		t.Logf("recorded %d of %d bytes; the output until %v before the kill is recorded", end, last.offset, lost)
		if r := w.Run("proxy", "verify", name); r.Code != 0 || !strings.HasPrefix(r.Out, fmt.Sprintf("%s: open, output 0-%d, ", name, end)) {
			t.Errorf("verify: %v", r)
		}
		if out := w.Must("proxy", "replay", name, "--output"); out != counterOutput(end) {
			t.Errorf("the %d bytes of recorded output differ from the printed bytes", len(out))
		}
		for range 3 {
			offset := 10 + uint64(rand.Int64N(int64(end)-10))
			var shown protocol.ScreenContent
			testkit.Must(t, json.Unmarshal([]byte(w.Must("proxy", "replay", name, "--json", "--at", fmt.Sprint(offset))), &shown))
			var lines []string
			for _, row := range shown.Cells {
				var line strings.Builder
				for _, cell := range row.Cells {
					line.WriteString(cell.Text)
				}
				lines = append(lines, line.String())
			}
			shown.Lines = lines
			checkCounter(t, protocol.SessionInfo{ID: "loud", Size: protocol.Size{Cols: shown.Cols, Rows: shown.Rows}, Lost: &protocol.Lost{Offset: offset}}, &shown)
		}
		if r := w.Run("proxy", "replay", name, "--at", fmt.Sprint(end+1)); r.Code != 66 {
			t.Errorf("replay at an offset after the end: %v, want exit 66", r)
		}
	}
}
