package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// The memory of a session, in KiB, in all three processes, and how often they wake up.
const (
	fullLines = 10_000 // above the screen
	// A session with that many lines that prints a line now and then (the heap has garbage then), and one that is silent.
	maxSlowKiB = 2000
	maxFullKiB = 250
	// A session that has printed a prompt. This includes memory that all sessions share.
	maxPromptKiB = 90
	// maxWakeups is how often all three processes may wake up in a second, beside silent sessions, however many they are.
	maxWakeups = 20
	// settleTime is how long a session may take until it is packed and its memory has been returned.
	settleTime = 2 * time.Minute
	// dropTime is how long a session must be silent until its screen is dropped, with some seconds more.
	dropTime = 80 * time.Second
)

// TestFootprint checks the memory of sessions that have printed what programs print, and compares it with that of
// tmux. It runs in the long mode, because a session must be silent for some time before it is packed.
func TestFootprint(t *testing.T) {
	if !isLong {
		t.Skip("takes minutes; HOLDFAST_LONG=1 runs it")
	}
	if os.Getenv("HOLDFAST_E2E_RACE") == "1" {
		t.Skip("the race detector needs memory itself")
	}
	w := newWorld(t)
	c := w.dial(client.Options{})
	mix := bytes.ReplaceAll(testkit.Mix(fullLines+24), []byte("\n"), []byte("\r\n"))
	file := w.write("mix", mix)
	full := number(t, "HOLDFAST_SESSIONS", 48)
	prompts := 3 * full
	w.printing(c, "first", full, len(mix), "cat "+file) // makes what the sessions share, and lets the heap of the proxy grow
	w.checkWakeups(full)
	time.Sleep(dropTime) // otherwise the sessions of before would become smaller during the next measurement
	before := w.steadyFootprint()
	w.printing(c, "full", full, len(mix), "cat "+file)
	w.settledFootprint("a silent session with 10,000 lines", before, full, maxFullKiB)
	w.checkWakeups(2 * full)
	time.Sleep(dropTime)
	before = w.steadyFootprint()
	w.printing(c, "prompt", prompts, 2, "printf '$ '")
	w.settledFootprint("a session with a prompt", before, prompts, maxPromptKiB)
	w.checkWakeups(2*full + prompts)
	time.Sleep(dropTime)
	before = w.steadyFootprint()
	w.printing(c, "slow", full, len(mix), "cat "+file+"; while sleep 0.3; do printf 'a line\\r\\n'; done")
	w.settledFootprint("a slow session with 10,000 lines", before, full, maxSlowKiB)
	t.Logf("together: %v", w.footprint())
	logTmux(t, file, full)
}

// printing starts n sessions that run a script and then wait, and returns when each has printed that many bytes.
func (w *world) printing(c *client.Client, name string, n, printed int, script string) {
	w.T.Helper()
	for i := range n {
		w.spawn(c, fmt.Sprint(name, i), shell("stty -opost; "+script+"; exec cat"))
	}
	testkit.Eventually(w.T, 60*limit, func() bool {
		list, err := c.List(w.ctx(), "")
		done := 0
		for _, s := range list {
			if strings.HasPrefix(string(s.ID), name) && s.OutputOffset >= uint64(printed) {
				done++
			}
		}
		return err == nil && done == n
	}, "the sessions have printed")
}

// A footprint is the memory of the three processes in KiB by part: the private memory of each process, and
// the memory files by name. A file counts once although two processes have it.
type footprint map[string]int

func (f footprint) total() (n int) {
	for _, kB := range f {
		n += kB
	}
	return n
}

func (w *world) footprint() footprint {
	w.T.Helper()
	f, seen := footprint{}, map[uint64]bool{}
	for _, name := range kinds {
		pid := w.Only(name).PID
		f[name], _ = strconv.Atoi(status(pid, "RssAnon"))
		paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, path := range paths {
			to, _ := os.Readlink(path)
			var st syscall.Stat_t
			file, isMemory := strings.CutPrefix(to, "/memfd:")
			if isMemory && syscall.Stat(path, &st) == nil && !seen[st.Ino] {
				seen[st.Ino] = true
				f[strings.TrimSuffix(file, " (deleted)")] += int(st.Blocks) / 2
			}
		}
	}
	return f
}

// steadyFootprint returns the median of some footprints, because a process has garbage now and then.
func (w *world) steadyFootprint() footprint {
	w.T.Helper()
	var all []footprint
	for range 9 {
		time.Sleep(time.Second) // the time between two measurements
		all = append(all, w.footprint())
	}
	slices.SortFunc(all, func(a, b footprint) int { return a.total() - b.total() })
	return all[len(all)/2]
}

// settledFootprint waits until n sessions that were started after the footprint before take at most limit KiB each,
// and returns the footprint with them.
func (w *world) settledFootprint(what string, before footprint, n, most int) (now footprint) {
	w.T.Helper()
	each := func() int { return (now.total() - before.total()) / n }
	begun := time.Now()
	ok := testkit.Poll(settleTime, func() bool {
		now = w.steadyFootprint()
		return each() <= most
	})
	var parts strings.Builder
	for _, name := range slices.Sorted(maps.Keys(now)) {
		fmt.Fprintf(&parts, ", %s %.1f", name, float64(now[name]-before[name])/float64(n))
	}
	w.T.Logf("%s takes %d KiB after %v%s", what, each(), time.Since(begun).Round(time.Second), &parts)
	if !ok {
		w.T.Errorf("%s takes %d KiB, want at most %d", what, each(), most)
	}
	return now
}

// checkWakeups waits until all is packed and stored, and checks how often the threads of the processes wake up then.
func (w *world) checkWakeups(sessions int) {
	w.T.Helper()
	const seconds = 5 // the time of a measurement
	n := 0
	ok := testkit.Poll(settleTime, func() bool {
		before := w.wakeups()
		time.Sleep(seconds * time.Second)
		n = (w.wakeups() - before) / seconds
		return n <= maxWakeups
	})
	w.T.Logf("%d wake-ups in a second beside %d silent sessions", n, sessions)
	if !ok {
		w.T.Errorf("%d wake-ups in a second beside %d silent sessions, want at most %d", n, sessions, maxWakeups)
	}
}

func (w *world) wakeups() (n int) {
	for _, name := range kinds {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", w.Only(name).PID))
		for _, task := range tasks {
			tid, _ := strconv.Atoi(filepath.Base(task))
			k, _ := strconv.Atoi(status(tid, "voluntary_ctxt_switches"))
			n += k
		}
	}
	return n
}

// logTmux logs the memory of sessions with the same lines in tmux, if it is installed.
func logTmux(t *testing.T, file string, n int) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Log("no tmux to compare with")
		return
	}
	socket := filepath.Join(t.TempDir(), "tmux")
	tmux := func(args ...string) string {
		out, err := exec.Command("tmux", append([]string{"-S", socket, "-f", os.DevNull}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	tmux("new-session", "-d", "-x", "80", "-y", "24", "cat")
	defer tmux("kill-server")
	tmux("set-option", "-g", "history-limit", strconv.Itoa(2*fullLines)) // tmux drops a tenth when the limit is reached
	pid, _ := strconv.Atoi(tmux("display-message", "-p", "#{pid}"))
	kB := func() int { n, _ := strconv.Atoi(status(pid, "RssAnon")); return n }
	before := kB()
	for range n {
		tmux("new-session", "-d", "-x", "80", "-y", "24", "cat "+file+"; exec cat")
	}
	testkit.Eventually(t, 10*limit, func() bool {
		for _, lines := range strings.Fields(tmux("list-panes", "-a", "-F", "#{history_size}"))[1:] {
			if k, _ := strconv.Atoi(lines); k < fullLines {
				return false
			}
		}
		return true
	}, "the panes of tmux have printed")
	t.Logf("a session with 10,000 lines takes %d KiB in tmux", (kB()-before)/n)
}
