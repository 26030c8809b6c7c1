//go:build linux

package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A disk that is slow, full, read-only or failing, and a clock that is set back, may affect the recording
// alone: sessions must answer, supervisors must be replaced and must start, and the recording must begin
// again when the disk works.
func TestBadDisk(t *testing.T) {
	if *inside {
		useBadDisk(t)
		return
	}
	if os.Getenv("HOLDFAST_LONG") == "" {
		t.Skip("long mode: set HOLDFAST_LONG=1")
	}
	d := newDisk(t, 64<<20)
	o := newOutside(t, d, 0, machineCommand(context.Background(), t, programs(t)))
	for r := range o.lines {
		words := strings.Fields(r.text)
		switch {
		case words[0] == "disk": // delay and error of all following writes
			ms, err := strconv.Atoi(words[1])
			number, invalid := strconv.Atoi(words[2])
			if err := errors.Join(err, invalid); err != nil {
				t.Fatalf("report %q: %v", r.text, err)
			}
			d.misbehave(diskFault{time.Duration(ms) * time.Millisecond, syscall.Errno(number)})
			o.command("done")
		default:
			t.Log(r.text)
		}
	}
	o.awaitEnd()
}

// A badDisk is the machine with a bad disk, seen from inside.
type badDisk struct {
	*guest
	failures int // the number of failures of recordings in the log
}

func useBadDisk(t *testing.T) {
	const dir = "/tmp/holdfast"
	for name, value := range map[string]string{"DIR": dir, "DURABLE": "full", "WEB": "", "CAGE": "off"} {
		t.Setenv("HOLDFAST_"+name, value)
	}
	line, err := os.OpenFile(linePath, os.O_RDWR, 0)
	testkit.Must(t, err)
	b := &badDisk{guest: &guest{machine: &machine{t: t}, line: line, commands: bufio.NewScanner(line)}}
	b.run("mount-disk")
	testkit.Must(t, errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(dir+"/sessions", 0o700)))
	b.run("mount", "--bind", "/disk", dir+"/sessions") // the logs stay on another disk
	b.run("proxy", "new", "-d", "--id", "s0", "--", "sh", "-c", answers)
	if b.c, err = client.Dial(t.Context(), client.Options{Name: "vm"}); err != nil {
		t.Fatal(err)
	}
	b.spawn("prints", protocol.Limits{}, "/bin/guest", "-generate=numbers", "-pause=50ms")
	b.echoes(1, "well")

	b.fault(200*time.Millisecond, 0)
	b.checkSurvival("slow disk", false)
	b.fault(15*time.Second, 0)
	b.checkRefusal()
	b.fault(0, 0)

	b.run("sh", "-c", "dd if=/dev/zero of=/disk/filler bs=64k 2>/dev/null; true")
	b.checkSurvival("full disk", true)
	b.run("rm", "/disk/filler")
	b.checkRecovery("full disk")

	if err := os.WriteFile("/proc/sysrq-trigger", []byte("u"), 0); err != nil { // makes all file systems read-only
		t.Fatal(err)
	}
	b.checkSurvival("read-only disk", true)
	b.run("mount", "-o", "remount,rw", "/disk")
	b.checkRecovery("read-only disk")

	now := time.Now()
	for _, at := range []time.Time{now.Add(-24 * time.Hour), now.Add(24 * time.Hour), now.Add(-time.Hour)} {
		b.run("date", "-s", "@"+strconv.FormatInt(at.Unix(), 10))
		b.echoes(1, "clock-"+strconv.FormatInt(at.Unix(), 10))
	}
	b.checkSurvival("clock that was set back", false)

	b.fault(0, syscall.EIO)
	b.checkSurvival("failing disk", true)
	if out := b.run("proxy", "ls"); !strings.Contains(out, "prints") {
		t.Errorf("ls prints %s", out)
	}
}

// fault makes all writes to the disk slow, or makes them fail.
func (b *badDisk) fault(delay time.Duration, err syscall.Errno) {
	b.say("disk %d %d", delay.Milliseconds(), int(err))
	if !b.commands.Scan() {
		b.t.Fatal(b.commands.Err())
	}
}

// checkSurvival checks that sessions answer, also after an upgrade. If fails is true, it also checks them after
// the supervisor was killed, and checks that the log reports sessions that are not recorded.
func (b *badDisk) checkSurvival(what string, fails bool) {
	b.t.Helper()
	word := strings.ReplaceAll(strings.ReplaceAll(what, " ", "-"), ":", "-")
	failures := func() int {
		log, _ := os.ReadFile("/tmp/holdfast/supervisor.log")
		return strings.Count(string(log), "session is not recorded")
	}
	took := b.echoes(1, word)
	old := b.supervisor()
	b.run("supervisor", "--upgrade")
	b.echoes(1, word+"-upgraded")
	now := b.supervisor()
	if old == nil || now == nil || now.Upgrades != old.Upgrades+1 {
		b.t.Errorf("%s: the upgrade failed: %+v, then %+v", what, old, now)
		return
	}
	if fails { // not each time, because the keeper starts no supervisor after 5 deaths in a minute
		testkit.Must(b.t, syscall.Kill(now.PID, syscall.SIGKILL))
		testkit.Eventually(b.t, limit, func() bool { next := b.supervisor(); return next != nil && next.PID != now.PID }, what+": another supervisor serves")
		b.echoes(1, word+"-restarted")
	}
	if fails && !testkit.Poll(limit, func() bool { return failures() > b.failures }) {
		b.t.Errorf("%s: the log contains no failure of the recording", what)
	}
	b.failures = failures()
	b.say("%s: a session echoes within %v, and after the supervisor was replaced", what, took)
}

// checkRefusal checks that sessions answer while the disk does not, and while an upgrade waits for it, which is then refused.
func (b *badDisk) checkRefusal() {
	b.t.Helper()
	threads := fmt.Sprintf("/proc/%d/task/*/stat", b.supervisor().PID)
	testkit.Eventually(b.t, limit, func() bool {
		files, _ := filepath.Glob(threads)
		return slices.ContainsFunc(files, func(file string) bool {
			stat, _ := os.ReadFile(file)
			return strings.Contains(string(stat), ") D ")
		})
	}, "a recording waits for the disk")
	refused := make(chan error, 1)
	go func() {
		out, err := exec.Command("supervisor", "--upgrade").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "upgrade_refused") {
			refused <- fmt.Errorf("the upgrade: %v, %s", err, out)
		}
		close(refused)
	}()
	var longest time.Duration
	for i := 0; ; i++ {
		longest = max(longest, b.echoes(1, fmt.Sprint("hung-disk-", i)))
		select {
		case err := <-refused:
			if err != nil || longest > 5*time.Second {
				b.t.Errorf("%v; a session echoes within %v", err, longest)
			}
			b.say("hung disk: a session echoes within %v, and the upgrade is refused", longest)
			return
		default:
		}
	}
}

// checkRecovery checks that output is recorded again.
func (b *badDisk) checkRecovery(what string) {
	b.t.Helper()
	stored := func() (n int64) {
		size, _ := strconv.ParseInt(strings.Fields(b.run("sh", "-c", "du -s /disk 2>/dev/null; true"))[0], 10, 64)
		return size
	}
	before := stored()
	testkit.Eventually(b.t, limit, func() bool { return stored() > before+100 }, what+": sessions are recorded again")
}
