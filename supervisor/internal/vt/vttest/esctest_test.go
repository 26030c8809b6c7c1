package vttest_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	creack "github.com/creack/pty"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/vt"
	. "holdfast/supervisor/internal/vt/vttest"
)

// esctestCols and esctestRows are the size that the suite expects.
const esctestCols, esctestRows = 80, 25

// A subject is a terminal that the suite tests: the core, or xterm.js.
type subject interface {
	Write(p []byte)
	Replies() ([]byte, error)
	State() (*vt.State, error)
}

type coreSubject struct{ *vt.Term }

func (c coreSubject) Replies() ([]byte, error)  { return c.Term.Replies(), nil }
func (c coreSubject) State() (*vt.State, error) { return c.Term.State(), nil }

// The suite reads the screen by DECRQCRA, which neither the core nor xterm.js answers, so the test answers it.
var (
	asksChecksum   = regexp.MustCompile(`\x1b\[([0-9;]*)\*y`)
	beginsChecksum = regexp.MustCompile(`\x1b(\[[0-9;]*\*?)?$`)
)

// checksum answers DECRQCRA as xterm does since patch 334: with the sum of the characters in a rectangle, in which an
// empty cell is a space.
func checksum(s *vt.State, params string) string {
	n := []int{0, 0, 1, 1, s.Rows, s.Cols} // id, page, top, left, bottom, right
	for i, p := range strings.Split(params, ";") {
		if v, err := strconv.Atoi(p); err == nil && i < len(n) && v > 0 {
			n[i] = v
		}
	}
	b := &s.Normal
	if s.Alternate != nil {
		b = s.Alternate
	}
	sum := 0
	for y := n[2]; y <= min(n[4], s.Rows); y++ {
		line := &b.Lines[b.History+y-1]
		for x := n[3]; x <= min(n[5], s.Cols); x++ {
			text := " "
			if x <= len(line.Cells) && line.Cells[x-1].Text != "" {
				text = line.Cells[x-1].Text
			}
			for _, r := range text {
				sum += int(r)
			}
		}
	}
	return fmt.Sprintf("\x1bP%d!~%04X\x1b\\", n[0], sum&0xffff)
}

// runEsctest runs the suite in a PTY whose other end is the terminal s, and returns what became of each test: "passed",
// "failed", "known" (xterm fails, too) or "skipped".
func runEsctest(t *testing.T, dir string, s subject) map[string]string {
	t.Helper()
	log := filepath.Join(testkit.Dir(t), "log")
	cmd := exec.Command("python3", filepath.Join(dir, "esctest.py"), "--expected-terminal", "xterm", "--xterm-checksum", "334",
		"--xterm-reverse-wrap", "383", "--no-print-logs", "--logfile", log, "--timeout", "1")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	f, err := creack.StartWithSize(cmd, &creack.Winsize{Cols: esctestCols, Rows: esctestRows})
	testkit.Must(t, err)
	defer f.Close()
	show := func(p []byte) {
		if len(p) == 0 {
			return
		}
		s.Write(p)
		replies, err := s.Replies()
		testkit.Must(t, err)
		_, err = f.Write(replies)
		testkit.Must(t, err)
	}
	var unseen []byte
	for p, isOver := make([]byte, 4096), false; !isOver; {
		n, err := f.Read(p)
		isOver = err != nil
		unseen = append(unseen, p[:n]...)
		for at := asksChecksum.FindSubmatchIndex(unseen); at != nil; at = asksChecksum.FindSubmatchIndex(unseen) {
			show(unseen[:at[0]])
			state, err := s.State()
			testkit.Must(t, err)
			_, err = io.WriteString(f, checksum(state, string(unseen[at[2]:at[3]])))
			testkit.Must(t, err)
			unseen = unseen[at[1]:]
		}
		end := len(unseen)
		if at := beginsChecksum.FindIndex(unseen); at != nil && !isOver {
			end = at[0]
		}
		show(unseen[:end])
		unseen = bytes.Clone(unseen[end:])
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("esctest: %v", err)
	}
	text, err := os.ReadFile(log)
	testkit.Must(t, err)
	return esctestResults(string(text))
}

// esctestResults returns the results in a log of the suite by the name of the test.
func esctestResults(log string) map[string]string {
	all, name := make(map[string]string), ""
	for line := range strings.Lines(log) {
		if test, ok := strings.CutPrefix(strings.TrimSpace(line), "Run test: "); ok {
			name = test
			continue
		}
		for begin, result := range map[string]string{
			"Passed.": "passed", "Fails as expected": "known", "Skipped because": "skipped", "*** TEST ": "failed",
		} {
			if strings.HasPrefix(line, begin) {
				all[name] = result
			}
		}
	}
	return all
}

// esctestReasons tells, for the tests that the core fails, what it lacks or does in another way on purpose. The first
// reason that matches counts. The table in vt/README.md has the reasons with the number of the tests.
var esctestReasons = []struct {
	reason string
	tests  *regexp.Regexp
}{
	{"rectangles", regexp.MustCompile(`^DEC(CRA|ERA|FRA|SERA)Tests`)},
	{"DECBI and DECFI", regexp.MustCompile(`^DEC(BI|FI)Tests`)},
	{"protection by SPA and EPA", regexp.MustCompile(`ISOProtect`)},
	{"reports of printer, keyboard, locator and memory", regexp.MustCompile(`^DECDSRTests`)},
	{"settings of DECRQSS and DECSCL that only a VT420 has", regexp.MustCompile(`^(DECRQSS|DECSCL)Tests`)},
	{"modes without an effect", regexp.MustCompile(`^DECRQMTests`)},
	{"colours of other spaces than RGB", regexp.MustCompile(`_(CIE|RGBI|TekHVC)`)},
	{"special colours", regexp.MustCompile(`SpecialColor`)},
	{"saved modes", regexp.MustCompile(`^XtermSaveTests`)},
	{"what the terminal is", regexp.MustCompile(`^DA2?Tests`)},
	{"window operations", regexp.MustCompile(`^XtermWinops|ResetTitleMode`)},
	{"132 columns", regexp.MustCompile(`DECCOLM|80To132|MoreFix`)},
	{"reverse wraparound", regexp.MustCompile(`(?i)ReverseWrap|WrappedInline|WrapsInWraparoundMode`)},
	{"mode 47", regexp.MustCompile(`_ALTBUF$`)},
	{"a cursor that waits to wrap", regexp.MustCompile(`CursorAtRightMargin`)},
	{"left and right margins", regexp.MustCompile(`Margin|LeftRight|LRM|OriginMode|ScrollRegion|ScrollingRegion|DECSLRM|DECLRMM|DECOM|CUBTests|CRTests`)},
}

// esctestOnlyXtermFails are the tests that only xterm.js fails: headless, it has no theme and no fixed cursor style, and
// it does not answer DECID.
var esctestOnlyXtermFails = regexp.MustCompile(`ResetColor_|ChangeColor|ChangeDynamicColor|DECRQSS_(SGR|DECSCUSR)$|^DECIDTests`)

// TestEsctest runs esctest2 (https://github.com/ThomasDickey/esctest2), whose directory esctest HOLDFAST_ESCTEST names. The core
// passes each test that xterm.js passes, and each other test fails for a reason that is known.
func TestEsctest(t *testing.T) {
	dir := os.Getenv("HOLDFAST_ESCTEST")
	if dir == "" {
		t.Skip("needs esctest2, which is no package; HOLDFAST_ESCTEST names the directory of its esctest.py")
	}
	term := vt.New(vt.Config{Cols: esctestCols, Rows: esctestRows, HistoryLines: 100})
	ours := runEsctest(t, dir, coreSubject{term})
	theirs := runEsctest(t, dir, Open(t).New(Config{Cols: esctestCols, Rows: esctestRows, History: 100}))
	if len(ours) < 400 {
		t.Errorf("only %d tests have run", len(ours))
	}
	counts, because := map[string]int{}, map[string]int{}
tests:
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		result := ours[name]
		counts[result]++
		if result != theirs[name] && !(result == "passed" && esctestOnlyXtermFails.MatchString(name)) {
			t.Errorf("%s: %s, but %s in xterm.js", name, result, theirs[name])
		}
		if result != "failed" {
			continue
		}
		for _, r := range esctestReasons {
			if r.tests.MatchString(name) {
				because[r.reason]++
				continue tests
			}
		}
		t.Errorf("%s fails", name)
	}
	t.Logf("%v; failed because of %v", counts, because)
}
