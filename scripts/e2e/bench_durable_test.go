package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// BenchmarkDurable lets cat print a file into sessions that are not stored, of which the screen is
// stored, and of which all output is stored, in turns. Then it measures how long the files of a
// build log are, and what the supervisor writes while nothing is printed:
//
//	go test -run '^$' -bench Durable -benchtime 1x ./scripts/e2e
//
// The CPU time is that of the supervisor. It includes what is written after the end of the output.
func BenchmarkDurable(b *testing.B) {
	file := filepath.Join(b.TempDir(), "text")
	testkit.Must(b, os.WriteFile(file, text(drainBytes), 0o600))
	w := newWorld(b)
	c := w.dial(client.Options{})
	w.drain(c, file, false, protocol.DurableOff) // the file is in memory from here on
	modes := []protocol.Durable{protocol.DurableOff, protocol.DurableScreen, protocol.DurableFull}
	speed, cpu := map[protocol.Durable][]float64{}, map[protocol.Durable][]float64{}
	for b.Loop() {
		for range drainRounds {
			for _, m := range modes {
				began := w.cpu()
				speed[m] = append(speed[m], rate(func() { w.drain(c, file, false, m) }))
				w.stored("drain") // until the files are complete
				cpu[m] = append(cpu[m], (w.cpu() - began).Seconds())
			}
		}
	}
	for _, m := range modes {
		b.ReportMetric(median(ratios(speed[m], nil)), string(m)+"-MB/s")
		b.ReportMetric(median(ratios(cpu[m], nil)), string(m)+"-cpu-s")
	}
	for _, m := range modes[1:] {
		b.ReportMetric(median(ratios(speed[m], speed[protocol.DurableOff])), string(m)+"/off")
		b.ReportMetric(median(ratios(cpu[m], cpu[protocol.DurableOff])), string(m)+"/off-cpu")
	}
	w.benchLog(b, c)
	w.benchSilence(b, c)
	b.ReportMetric(0, "ns/op")
}

// ratios divides the figures of each round, because the load of the machine changes between rounds.
func ratios(all, by []float64) []float64 {
	out := append([]float64{}, all...)
	for i := range by {
		out[i] /= by[i]
	}
	return out
}

// cpu returns the CPU time that the supervisor has used.
func (w *world) cpu() time.Duration {
	w.T.Helper()
	return cpuOf(w.T, []int{w.Only("supervisor").PID})
}

// cpuOf returns the CPU time that processes have used.
func cpuOf(t testing.TB, pids []int) time.Duration {
	t.Helper()
	var ticks int64
	for _, pid := range pids {
		for _, field := range testkit.StatFields(pid)[11:13] {
			n, err := strconv.ParseInt(field, 10, 64)
			testkit.Must(t, err)
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// stored returns the length of the files of a session's output, how much output they contain, and how
// much is missing between them, when they do not grow any more. The output of the open segment is
// unknown, so that it does not count.
func (w *world) stored(id string) (disk, output, missing uint64) {
	w.T.Helper()
	changed := time.Now()
	testkit.Eventually(w.T, limit, func() bool {
		before := disk
		disk, output, missing = 0, 0, 0
		var last uint64
		files, _ := filepath.Glob(filepath.Join(w.Dir, "sessions", id+"@*", "0*"))
		for _, f := range files {
			start, end, isClosed := strings.Cut(filepath.Base(f), "-")
			info, err := os.Stat(f)
			from, startErr := strconv.ParseUint(start, 10, 64)
			to, endErr := strconv.ParseUint(end, 10, 64)
			if err != nil || startErr != nil || !isClosed || endErr != nil {
				continue
			}
			missing += from - last
			last = to
			disk, output = disk+uint64(info.Size()), output+to-from
		}
		if disk != before {
			changed = time.Now()
		}
		return time.Since(changed) > 2*time.Second // more than durable_sync
	}, "the files of "+id+" are complete")
	return disk, output, missing
}

// benchLog measures how long the files of a build log are, which is printed at about 10 MB a second.
func (w *world) benchLog(b *testing.B, c *client.Client) {
	b.Helper()
	once, err := exec.Command("go", "build", "-n", "-a", "-x", "std").CombinedOutput()
	testkit.Must(b, err)
	file := filepath.Join(b.TempDir(), "log")
	const length = 64 << 20
	testkit.Must(b, os.WriteFile(file, bytes.Repeat(once, 1+length/len(once))[:length], 0o600))
	script := fmt.Sprintf("for i in $(seq 0 63); do tail -c +$((i * 1048576 + 1)) %s | head -c 1048576; sleep 0.1; done", file)
	s := w.spawn(c, "log", protocol.SpawnSpec{Argv: []string{"sh", "-c", script}, Durable: protocol.DurableFull})
	if _, err := c.Wait(b.Context(), s.SessionID, -1); err != nil {
		b.Fatal(err)
	}
	disk, output, missing := w.stored("log")
	b.ReportMetric(float64(disk)/float64(output), "log-disk/output")
	b.ReportMetric(float64(missing)/float64(output+missing), "log-missing/output")
}

// benchSilence counts what the supervisor writes while nothing is printed, after the files were closed.
func (w *world) benchSilence(b *testing.B, c *client.Client) {
	b.Helper()
	for _, m := range []protocol.Durable{protocol.DurableScreen, protocol.DurableFull} {
		spec := echoing
		spec.Durable = m
		w.spawn(c, "silent-"+string(m), spec)
	}
	time.Sleep(30 * time.Second) // it is more than the silence after which the files are closed
	before := w.writes()
	time.Sleep(5 * time.Second) // it is the time that is measured
	for name, n := range w.writes() {
		b.ReportMetric(float64(n-before[name]), "silent-"+name)
	}
}

// writes returns the counts of the system's calls that write, and of the bytes for the disk, of the
// supervisor.
func (w *world) writes() map[string]int64 {
	w.T.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", w.Only("supervisor").PID))
	testkit.Must(w.T, err)
	counts := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "syscw" || name == "write_bytes" {
			n, err := strconv.ParseInt(value, 10, 64)
			testkit.Must(w.T, err)
			counts[name] = n
		}
	}
	return counts
}
