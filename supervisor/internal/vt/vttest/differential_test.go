package vttest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/vt"
	. "holdfast/supervisor/internal/vt/vttest"
)

// compared ignores differences that no terminal shows.
var compared = Options{FirstWrapped: true, HiddenCursor: true}

// printed also ignores state that a snapshot cannot restore.
var printed = Options{FirstWrapped: true, HiddenCursor: true, Printable: true}

// errNothing is returned if xterm.js shows one of its defects, so that the result cannot be compared.
var errNothing = errors.New("a defect of xterm.js")

// core returns a terminal that has executed the steps of the case.
func core(c *Case) *vt.Term {
	term := vt.New(vt.Config{Cols: c.Cols, Rows: c.Rows, HistoryLines: c.History, Graphemes: c.Unicode == graphemes})
	Do(term, c.Steps)
	return term
}

// plain returns a state after it was encoded and decoded, as another program would receive it.
func plain(t testing.TB, s *vt.State) *vt.State {
	t.Helper()
	data, err := json.Marshal(s)
	testkit.Must(t, err)
	copied := new(vt.State)
	testkit.Must(t, json.Unmarshal(data, copied))
	return copied
}

// real returns the state of xterm.js after the steps. It writes as few pieces as possible, because xterm.js loses
// characters that are cut at a byte of 0x80.
func real(o *Oracle, c *Case) (*vt.State, error) {
	s := o.New(c.Config)
	defer s.Close()
	Do(s, Join(c.Steps))
	state, err := s.State() // State may meet a defect, too
	if thrown := new(Thrown); errors.As(err, &thrown) {
		return nil, fmt.Errorf("%w: it threw", errNothing)
	} else if err != nil {
		return nil, err
	}
	if defects, err := s.Defects(); err != nil {
		return nil, err
	} else if defects != "" {
		return nil, fmt.Errorf("%w: %s", errNothing, defects)
	}
	return state, nil
}

// doubtful reports whether xterm.js contradicts itself in a case: its state depends on how the text was cut.
func doubtful(o *Oracle, c *Case, want *vt.State) bool {
	s := o.New(c.Config)
	defer s.Close()
	Do(s, slices.Collect(characters(c.Steps)))
	got, err := s.State()
	return err != nil || Diff(got, want) != ""
}

// check is one comparison of the core with xterm.js. It returns the difference, or "" for none, or errNothing.
type check func(t testing.TB, o *Oracle, c *Case) (diff string, err error)

var checks = []struct {
	name string
	check
}{
	// The core shows the same as xterm.js.
	{"same", func(t testing.TB, o *Oracle, c *Case) (string, error) {
		want, err := real(o, c)
		if err != nil {
			return "", err
		}
		diff := Diff(plain(t, core(c).State()), want, compared)
		if diff != "" && doubtful(o, c, want) {
			return "", errNothing
		}
		return diff, nil
	}},
	// An xterm.js that receives the core's snapshot shows the same as one that received all output.
	{"snapshot", func(t testing.TB, o *Oracle, c *Case) (string, error) {
		want, err := real(o, c)
		if err != nil {
			return "", err
		}
		if Unprintable(want) {
			return "", errNothing
		}
		got, err := real(o, fromSnapshot(c))
		if err != nil {
			return "", err
		}
		diff := Diff(got, want, printed)
		// If the core differs at this point, the check "same" reports it.
		if diff != "" && Diff(plain(t, core(c).State()), want, compared) != "" {
			return "", errNothing
		}
		return diff, nil
	}},
	// A core that receives the snapshot shows the same as the terminal of the snapshot.
	{"own snapshot", func(t testing.TB, _ *Oracle, c *Case) (string, error) {
		want := core(c).State()
		if Unprintable(want) {
			return "", errNothing
		}
		return Diff(core(fromSnapshot(c)).State(), want, printed), nil
	}},
	// The state does not depend on how the output was cut.
	{"cuts", func(t testing.TB, _ *Oracle, c *Case) (string, error) {
		whole, each := *c, *c
		whole.Steps, each.Steps = Join(c.Steps), Bytes(c.Steps)
		want := core(&whole).State()
		if diff := Diff(core(c).State(), want); diff != "" {
			return diff, nil
		}
		return Diff(core(&each).State(), want), nil
	}},
}

// fromSnapshot returns a case that consists of a snapshot of c's final state, and should end in the same state.
func fromSnapshot(c *Case) *Case {
	term := core(c)
	s := &Case{Name: c.Name, Config: c.Config, Steps: []Step{{Write: term.Snapshot()}}}
	s.Cols, s.Rows = Size(c.Cols, c.Rows, c.Steps)
	return s
}

// run executes a check. If it fails, run finds the shortest case that fails and stores it in keepDir.
func (check check) run(t *testing.T, o *Oracle, c *Case) (compared bool) {
	t.Helper()
	diff, err := check(t, o, c)
	if errors.Is(err, errNothing) {
		return false
	}
	if err != nil {
		t.Errorf("%s: %v", c.Name, err)
		return false
	}
	if diff == "" {
		return true
	}
	least := *c
	least.Steps = Minimise(c.Steps, func(steps []Step) bool {
		try := *c
		try.Steps = steps
		diff, err := check(t, o, &try)
		return err == nil && diff != ""
	})
	if d, err := check(t, o, &least); err == nil && d != "" {
		diff = d
	}
	least.Name = "holdfast-" + strings.NewReplacer(" ", "-", "/", "-").Replace(t.Name()+"-"+c.Name)
	name, err := least.Save(keepDir)
	if err != nil {
		t.Error(err)
	}
	t.Errorf("kept as %s\n%s\n%s", name, least.String(), diff)
	return true
}

// keepDir is the directory in which cases that fail are stored. They are not deleted.
var keepDir = os.TempDir()

// maxFailures is the number of failures after which a run of streams stops.
const maxFailures = 3

func TestCoreStreams(t *testing.T) {
	n := streams(t, 300)
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			o := Open(t)
			met := 0
			for i, failures := 0, 0; i < n && failures < maxFailures; i++ {
				s := stream(i)
				t.Run(s.Name, func(t *testing.T) {
					if !c.run(t, o, s) {
						met++
					}
					if t.Failed() {
						failures++
					}
				})
			}
			t.Logf("%d of %d streams could not be compared", met, n)
			if 3*met > n { // a fifth is usual, with a standard deviation of 7 of 300
				t.Errorf("%d of %d streams could not be compared", met, n)
			}
		})
	}
}

func TestCoreCases(t *testing.T) {
	o := Open(t)
	for _, kept := range LoadCases(t, "testdata/cases") {
		for _, c := range checks {
			t.Run(kept.Name+"/"+c.name, func(t *testing.T) {
				if !c.run(t, o, kept) {
					t.Log("xterm.js shows a defect: not compared")
				}
			})
		}
	}
}

func TestCoreRecordings(t *testing.T) {
	o := Open(t)
	for _, recording := range recordings {
		t.Run(recording.name, func(t *testing.T) {
			p, output := record(t, o, recording.program)
			for _, size := range []int{0, 1, 97, 4096} {
				c := &Case{Name: strings.ReplaceAll(recording.name, " ", "-"), Config: Config{Cols: p.Cols, Rows: p.Rows, History: 1000}}
				if size == 0 {
					c.Steps = halfway(output)
				} else {
					for piece := range slices.Chunk(output, size) {
						c.Steps = append(c.Steps, Step{Write: piece})
					}
				}
				for _, check := range checks {
					t.Run(check.name, func(t *testing.T) { check.run(t, o, c) })
				}
			}
		})
	}
}

// halfway returns the part of a recording that ends in the middle of a full screen.
func halfway(output []byte) []Step {
	return []Step{{Write: bytes.Clone(output[:len(output)/2])}}
}
