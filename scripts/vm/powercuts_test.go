//go:build linux

package vm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

const (
	// maxLoss is the time before a power cut whose output may be lost.
	maxLoss = time.Second
	// slack is added to maxLoss before a test fails, because a step of the recording may be late: the
	// processor is 5 to 10 times slower than a real one, and all sessions use it.
	slack     = 500 * time.Millisecond
	diskBytes = 128 << 20
)

// After each of several power cuts under load, every session that existed for a second must be listed as
// lost. Its screen must be exactly the screen at the offset in the list, and this offset must be at most a
// second of output before the end. A lost session must start again and show its old lines. Data that the
// machine's kernel has not written is lost, and any part of the data that the disk has not flushed.
// HOLDFAST_CUTS is the number of power cuts; HOLDFAST_SEED repeats a run.
// demand: D1, D2, D3
func TestPowerCuts(t *testing.T) {
	if *inside {
		obeyPower(t)
		return
	}
	cuts := 2
	if os.Getenv("HOLDFAST_LONG") != "" {
		cuts = 200
	}
	if n, err := strconv.Atoi(os.Getenv("HOLDFAST_CUTS")); err == nil {
		cuts = n
	}
	seed := testkit.Seed()
	t.Logf("HOLDFAST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	dir, d := programs(t), newDisk(t, diskBytes)
	state := saveMachine(t, dir, d)
	var before *outside
	var losses []time.Duration
	for round := range cuts + 1 {
		o := newOutside(t, d, round, machineCommand(context.Background(), t, dir, "-i", state))
		o.await("up")
		o.command("mount")
		o.command("check " + before.mustExist())
		o.await("checked")
		losses = append(losses, before.compare(o)...)
		if round == cuts {
			o.command("end")
			o.awaitEnd()
			break
		}
		o.command("load " + strconv.Itoa(round))
		o.await("loaded")
		time.Sleep(time.Second + time.Duration(random.Int64N(int64(1500*time.Millisecond)))) // the cut comes at a random moment
		o.cutPower(random)
		if t.Failed() {
			break
		}
		before = o
	}
	if len(losses) > 0 {
		slices.Sort(losses)
		t.Logf("%d cuts; the oldest output that each of %d sessions has lost was printed before the cut by: median %v, p99 %v, at most %v",
			cuts, len(losses), losses[len(losses)/2], losses[len(losses)*99/100], losses[len(losses)-1])
	}
}

// An outside is a machine seen from outside, with its reports.
type outside struct {
	t     *testing.T
	disk  *disk
	round int
	cmd   *exec.Cmd
	out   bytes.Buffer
	conn  net.Conn
	lines chan report
	ended chan error

	born  map[string]time.Time // the time of each session's start
	at    map[string][]offsetAt
	lost  map[string]uint64
	cutAt time.Time

	mu    sync.Mutex
	waits []wait
}

// A wait is the total time that the machine has waited for a processor until a moment.
type wait struct {
	time.Duration
	at time.Time
}

// A report is a line from the machine, with the time of its arrival.
type report struct {
	text string
	at   time.Time
}

// An offsetAt is the offset of a session's output at a moment.
type offsetAt struct {
	offset uint64
	at     time.Time
}

// saveMachine boots a machine, saves its state in a file before it mounts the disk, and returns the file, so
// that the rounds need no boot. All these machines continue at the same time of their clock, so each cut sets
// the clock back.
func saveMachine(t *testing.T, dir string, d *disk) (state string) {
	t.Helper()
	sockets := t.TempDir()
	state, control := filepath.Join(sockets, "state"), filepath.Join(sockets, "control.sock")
	o := newOutside(t, d, 0, machineCommand(context.Background(), t, dir, "-c", control))
	o.await("up")
	qemu, err := net.Dial("unix", control)
	testkit.Must(t, err)
	defer func() { _ = qemu.Close() }()
	if _, err := fmt.Fprintf(qemu, "migrate_set_parameter max-bandwidth 4G\nmigrate \"exec:cat >%s\"\nquit\n", state); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(qemu)
	<-o.ended // the guest's program has not ended, which the script reports as a failure
	if info, missing := os.Stat(state); err != nil || missing != nil || info.Size() < 1<<20 {
		t.Fatalf("the machine is not saved: %v, %v, %s", err, missing, said)
	}
	return state
}

// newOutside starts a machine.
func newOutside(t *testing.T, d *disk, round int, cmd *exec.Cmd) *outside {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "line.sock")
	ln, err := net.Listen("unix", socket)
	testkit.Must(t, err)
	defer func() { _ = ln.Close() }()
	o := &outside{
		t: t, disk: d, round: round, lines: make(chan report, 1<<16), ended: make(chan error, 1),
		born: map[string]time.Time{}, at: map[string][]offsetAt{}, lost: map[string]uint64{},
	}
	d.powerOn()
	cmd.Args = slices.Insert(cmd.Args, 1, "-m", "512", "-s", "300", "-d", "nbd+unix:///?socket="+d.socket, "-l", socket)
	o.cmd = cmd
	o.cmd.Stdout, o.cmd.Stderr = &o.out, &o.out
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testkit.Must(t, o.cmd.Start())
	t.Cleanup(func() { _ = syscall.Kill(-o.cmd.Process.Pid, syscall.SIGTERM) }) // the process may have ended
	go func() {
		o.ended <- o.cmd.Wait()
		_ = ln.Close()
	}()
	if o.conn, err = ln.Accept(); err != nil {
		err := <-o.ended
		skipUnavailable(t, err, o.out.Bytes())
		t.Fatalf("the machine did not start: %v\n%s", err, o.out.String())
	}
	go o.countWaits()
	go func() {
		defer close(o.lines)
		for s := bufio.NewScanner(o.conn); s.Scan(); {
			o.lines <- report{s.Text(), time.Now()}
		}
	}()
	return o
}

func (o *outside) command(text string) {
	if _, err := fmt.Fprintln(o.conn, text); err != nil {
		o.t.Fatal(err)
	}
}

// await reads reports until one has this text.
func (o *outside) await(text string) {
	o.t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		select {
		case r, ok := <-o.lines:
			if !ok {
				o.t.Fatalf("the machine has ended before %q: %v\n%s", text, <-o.ended, o.out.String())
			}
			o.note(r)
			if r.text == text {
				return
			}
		case <-deadline:
			_ = syscall.Kill(-o.cmd.Process.Pid, syscall.SIGTERM)
			<-o.ended
			o.t.Fatalf("the machine does not report %q\n%s", text, o.out.String())
		}
	}
}

// note stores a report.
func (o *outside) note(r report) {
	words := strings.Fields(r.text)
	switch {
	case len(words) == 2 && words[0] == "born":
		o.born[words[1]] = r.at
	case len(words) == 3 && (words[0] == "at" || words[0] == "lost"):
		offset, err := strconv.ParseUint(words[2], 10, 64)
		if err != nil {
			o.t.Fatalf("report %q: %v", r.text, err)
		}
		if words[0] == "lost" {
			o.lost[words[1]] = offset
			return
		}
		o.at[words[1]] = append(o.at[words[1]], offsetAt{offset, r.at})
	case words[0] == "bad":
		o.t.Errorf("after cut %d: %s", o.round-1, strings.ReplaceAll(r.text, `\n`, "\n"))
	}
}

// cutPower cuts the power, and reads the reports that were sent before.
func (o *outside) cutPower(r *rand.Rand) {
	o.cutAt = time.Now()
	lost, kept := o.disk.cutPower(r)
	_ = syscall.Kill(-o.cmd.Process.Pid, syscall.SIGTERM) // the machine is not informed
	<-o.ended
	_ = o.conn.Close()
	for r := range o.lines {
		if r.at.Before(o.cutAt) {
			o.note(r)
		}
	}
	o.t.Logf("cut %d: %d sessions; of the unflushed sectors, %d are lost and %d kept; output that was printed at least %v before the cut must exist", o.round, len(o.born), lost, kept, o.allowed())
}

// awaitEnd waits until the machine has ended without a failure.
func (o *outside) awaitEnd() {
	o.t.Helper()
	if err := <-o.ended; err != nil || !strings.Contains(o.out.String(), "--- PASS: "+o.t.Name()) {
		o.t.Fatalf("%v\n%s", err, o.out.String())
	}
}

// countWaits records how long the threads of the machine have waited for a processor that other programs
// used, until the machine ends.
func (o *outside) countWaits() {
	raw, err := o.conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		o.t.Error(err)
		return
	}
	var qemu *syscall.Ucred
	if failed := raw.Control(func(fd uintptr) {
		qemu, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); errors.Join(failed, err) != nil {
		o.t.Error(failed, err)
		return
	}
	for {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", qemu.Pid))
		if len(threads) == 0 {
			return
		}
		w := wait{at: time.Now()}
		for _, path := range threads {
			text, _ := os.ReadFile(path)
			if fields := strings.Fields(string(text)); len(fields) > 1 {
				ns, _ := strconv.ParseInt(fields[1], 10, 64)
				w.Duration += time.Duration(ns)
			}
		}
		o.mu.Lock()
		o.waits = append(o.waits, w)
		o.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
}

// allowed returns the longest time before the cut whose output may be lost: maxLoss, plus the time in which
// the machine had no processor.
func (o *outside) allowed() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := maxLoss
	var last wait
	for _, w := range slices.Backward(o.waits) {
		if w.at.After(o.cutAt) {
			continue
		}
		if last.at.IsZero() {
			last = w
		}
		if d = o.cutAt.Sub(w.at); d-(last.Duration-w.Duration) >= maxLoss {
			break
		}
	}
	return max(d, maxLoss)
}

// mustExist returns the sessions that must be listed after the cut.
func (o *outside) mustExist() string {
	if o == nil {
		return ""
	}
	var ids []string
	for id, at := range o.born {
		if o.cutAt.Sub(at) >= o.allowed()+slack {
			ids = append(ids, id)
		}
	}
	return strings.Join(ids, " ")
}

// compare compares the sessions that the next machine has found with the reports of this machine. For each
// session that has lost output, it returns how long before the cut the oldest lost output was printed.
func (o *outside) compare(next *outside) (losses []time.Duration) {
	if o == nil {
		return nil
	}
	for id, offset := range next.lost {
		if !strings.HasSuffix(id, "-"+strconv.Itoa(o.round)) {
			o.t.Errorf("after cut %d: session %s is listed, which was forgotten", o.round, id)
		}
		for _, printed := range o.at[id] {
			if printed.offset <= offset {
				continue
			}
			loss := o.cutAt.Sub(printed.at)
			if losses = append(losses, loss); loss > o.allowed()+slack {
				o.t.Errorf("after cut %d: session %s is restored up to offset %d, but had printed up to %d %v before", o.round, id, offset, printed.offset, loss)
			}
			break
		}
	}
	return losses
}
