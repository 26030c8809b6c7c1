package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// The benchmarks check two claims: the supervisor reads a session's output about as fast as the kernel's
// terminal provides it, and the echo of a key takes little longer than on a bare terminal. Because the
// machine may be shared, both sides are measured in turns, in one run:
//
//	go test -run '^$' -bench . ./scripts/e2e
const (
	drainRounds = 5
	drainBytes  = 256 << 20
	echoRounds  = 10
	echoes      = 500
)

// BenchmarkDrain measures how fast cat prints a file into a session without a viewer, into a session whose
// viewer reads all output, and into a bare terminal.
func BenchmarkDrain(b *testing.B) {
	file := filepath.Join(b.TempDir(), "text")
	testkit.Must(b, os.WriteFile(file, text(drainBytes), 0o600))
	w := newWorld(b)
	c := w.dial(client.Options{})
	var held, viewed, bare []float64
	for b.Loop() {
		for range drainRounds {
			bare = append(bare, rate(func() { drainBare(b, "cat", file) }))
			held = append(held, rate(func() { w.drain(c, file, false, "") }))
			viewed = append(viewed, rate(func() { w.drain(c, file, true, "") }))
		}
	}
	b.ReportMetric(median(bare), "bare-MB/s")
	b.ReportMetric(median(held), "held-MB/s")
	b.ReportMetric(median(viewed), "viewed-MB/s")
	b.ReportMetric(median(held)/median(bare), "held/bare")
	b.ReportMetric(median(viewed)/median(bare), "viewed/bare")
	b.ReportMetric(0, "ns/op")
}

// text returns lines as in a log, each about as wide as a screen.
func text(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%08d the quick brown fox jumps over the lazy dog, again and again\n", i)
	}
	return b.Bytes()[:n]
}

func rate(f func()) float64 {
	begun := time.Now()
	f()
	return drainBytes / 1e6 / time.Since(begun).Seconds()
}

func median[T float64 | time.Duration](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

// drain runs cat in a session until it ends. If view is true, an attachment reads the output.
func (w *world) drain(c *client.Client, file string, view bool, mode protocol.Durable) {
	w.T.Helper()
	ctx := w.T.Context()
	s := w.spawn(c, "drain", protocol.SpawnSpec{Argv: []string{"cat", file}, Durable: mode, Unattended: !view})
	if view {
		a, err := c.Attach(ctx, s.SessionID, client.AttachOptions{})
		testkit.Must(w.T, err)
		if _, err := io.Copy(io.Discard, a); err != nil || a.Exit() == nil {
			w.T.Fatalf("%v, %+v", err, a.Exit())
		}
		_ = a.Detach()
	}
	exit, err := c.Wait(ctx, s.SessionID, -1)
	if err != nil || exit.ExitCode != 0 {
		w.T.Fatalf("%+v, %v", exit, err)
	}
	testkit.Must(w.T, c.Forget(ctx, s.SessionID))
}

// BenchmarkEcho measures the time between a key and its echo: in a session through the proxy, and on a bare
// terminal.
func BenchmarkEcho(b *testing.B) {
	w := newWorld(b)
	v := w.echo(w.dial(client.Options{}), "echo")
	tty := startBare(b, echoing.Argv...)
	readUntil(b, tty, "ready\n")
	var held, bare []time.Duration
	key := make([]byte, 1)
	for b.Loop() {
		for range echoRounds {
			bare = append(bare, roundTrips(b, tty, key)...)
			held = append(held, roundTrips(b, v.Attachment, key)...)
		}
	}
	micros := func(d time.Duration, unit string) { b.ReportMetric(float64(d.Nanoseconds())/1000, unit) }
	micros(median(bare), "bare-p50-µs")
	micros(bare[len(bare)*99/100], "bare-p99-µs")
	micros(median(held), "held-p50-µs")
	micros(held[len(held)*99/100], "held-p99-µs")
	micros(median(held)-median(bare), "more-p50-µs")
	micros(held[len(held)*99/100]-bare[len(bare)*99/100], "more-p99-µs")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkEchoBesideFlood measures echoes in one session while other sessions without viewers print as fast
// as they can. It compares them with bare terminals under the same load.
func BenchmarkEchoBesideFlood(b *testing.B) {
	for _, floods := range []int{1, 3} {
		b.Run(fmt.Sprint(floods), func(b *testing.B) {
			w := newWorld(b)
			c := w.dial(client.Options{})
			v := w.echo(c, "echo")
			key := make([]byte, 1)
			var held []time.Duration
			for i := range floods {
				w.spawn(c, fmt.Sprint("flood", i), flooding)
			}
			for b.Loop() {
				held = append(held, roundTrips(b, v.Attachment, key)...)
			}
			for i := range floods {
				testkit.Must(b, c.Terminate(b.Context(), protocol.SessionID(fmt.Sprint("flood", i)), client.End{}))
			}
			tty := startBare(b, echoing.Argv...)
			readUntil(b, tty, "ready\n")
			for range floods {
				go drainTTY(startBare(b, flooding.Argv...))
			}
			bare := roundTrips(b, tty, key)
			b.ReportMetric(float64(median(held).Nanoseconds())/1000, "held-p50-µs")
			b.ReportMetric(float64(held[len(held)*99/100].Nanoseconds())/1000, "held-p99-µs")
			b.ReportMetric(float64(median(bare).Nanoseconds())/1000, "bare-p50-µs")
			b.ReportMetric(float64(bare[len(bare)*99/100].Nanoseconds())/1000, "bare-p99-µs")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func roundTrips(b *testing.B, rw io.ReadWriter, key []byte) []time.Duration {
	b.Helper()
	took := make([]time.Duration, echoes)
	for i := range took {
		key[0] = 'a' + byte(i%26)
		want := key[0]
		begun := time.Now()
		if _, err := rw.Write(key); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(rw, key); err != nil {
			b.Fatal(err)
		}
		took[i] = time.Since(begun)
		if key[0] != want {
			b.Fatalf("the echo of %q is %q", want, key[0])
		}
	}
	return took
}

// startBare starts a program on a terminal of its own, without Holdfast.
func startBare(t testing.TB, argv ...string) *os.File {
	t.Helper()
	master, slave, err := openPTY()
	testkit.Must(t, err)
	t.Cleanup(func() { _ = master.Close() })
	defer slave.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil { // in a session of its own, so that it receives SIGHUP when the master is closed
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return master
}

// openPTY makes a terminal.
func openPTY() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
	}
	return master, slave, err
}

// drainBare runs a program on a bare terminal and reads its output.
func drainBare(t testing.TB, argv ...string) {
	t.Helper()
	drainTTY(startBare(t, argv...))
}

func drainTTY(tty *os.File) {
	buf := make([]byte, 64<<10)
	for {
		if _, err := tty.Read(buf); err != nil { // EIO is the end of the output
			return
		}
	}
}

func readUntil(t testing.TB, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, 0, 64)
	for !bytes.HasSuffix(got, []byte(want)) {
		b := make([]byte, 1)
		if _, err := r.Read(b); err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, b...)
	}
}
