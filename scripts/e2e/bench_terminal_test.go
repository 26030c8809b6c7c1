package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A holder keeps programs on terminals, and shows each on a person's terminal by an attach command.
type holder struct {
	name  string
	start func(id, script string) (attach []string) // starts a script of bash; attach is the command that shows it
	pids  func() []int                              // the processes that hold the programs, without the attach commands
}

const (
	keyPause      = 2 * time.Millisecond // between two keys, so that all processes sleep as they do while a person types
	terminalBytes = 64 << 20             // that a program prints in a round
)

// holders returns Holdfast and, to compare, tmux, dtach and a relay. The relay has three processes as Holdfast has, but
// they only copy: its figures are those that no keeper of this shape in Go can do much better.
func holders(b *testing.B) []holder {
	b.Helper()
	w := newWorld(b)
	c := w.dial(client.Options{})
	dir := b.TempDir()
	tmux := func(args ...string) []string {
		return append([]string{"-S", filepath.Join(dir, "tmux"), "-f", os.DevNull}, args...)
	}
	b.Cleanup(func() { _ = exec.Command("tmux", tmux("kill-server")...).Run() })
	var dtachPIDs []int
	return []holder{
		{
			"holdfast",
			func(id, script string) []string {
				w.spawn(c, id, protocol.SpawnSpec{Argv: []string{"bash", "-c", script}})
				return slices.Concat([]string{"env"}, w.Env, []string{testkit.Build(b, testkit.Programs...) + "/holdfast", "attach", id})
			},
			func() []int { return []int{w.Only("supervisor").PID, w.Only("proxy").PID} },
		},
		{
			"tmux",
			func(id, script string) []string {
				start := tmux("new-session", "-d", "-s", id, "bash", "-c", script, ";", "set", "-g", "status", "off")
				if out, err := exec.Command("tmux", start...).CombinedOutput(); err != nil {
					b.Fatalf("tmux: %v: %s", err, out)
				}
				return append([]string{"env", "TERM=xterm-256color", "tmux"}, tmux("attach", "-t", id)...)
			},
			func() []int {
				out, err := exec.Command("tmux", tmux("display-message", "-p", "#{pid}")...).Output()
				pid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
				if err != nil || pid == 0 {
					b.Fatalf("no process of tmux: %q, %v", out, err)
				}
				return []int{pid}
			},
		},
		{
			"dtach",
			func(id, script string) []string {
				socket := filepath.Join(dir, id+".dtach")
				dtachPIDs = append(dtachPIDs, launch(b, "dtach", "-N", socket, "bash", "-c", script))
				awaitSocket(b, socket)
				return []string{"dtach", "-a", socket, "-r", "none", "-E"}
			},
			func() []int { return dtachPIDs },
		},
		relayHolder(b, 0),
	}
}

// relayHolder returns a relay that sends so many bytes to a new viewer, in place of a screen.
func relayHolder(b *testing.B, first int) holder {
	b.Helper()
	dir, exe := b.TempDir(), testkit.Build(b, "holdfast/scripts/e2e/relay")+"/relay"
	var pids []int
	return holder{
		"relay",
		func(id, script string) []string {
			held, passed := filepath.Join(dir, id+".held"), filepath.Join(dir, id+".passed")
			pids = append(pids, launch(b, exe, "hold", held, strconv.Itoa(first), "bash", "-c", script), launch(b, exe, "pass", passed, held))
			awaitSocket(b, held)
			awaitSocket(b, passed)
			return []string{exe, "attach", passed}
		},
		func() []int { return pids },
	}
}

// launch starts a program, which is killed at the end of the benchmark, and returns its pid.
func launch(b *testing.B, argv ...string) int {
	b.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	testkit.Must(b, cmd.Start())
	b.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd.Process.Pid
}

// awaitSocket waits until a program has made its socket.
func awaitSocket(b *testing.B, path string) {
	b.Helper()
	testkit.Eventually(b, limit, func() bool { _, err := os.Stat(path); return err == nil }, path+" is there")
}

// A viewed is a person's terminal on which an attach command runs.
type viewed struct {
	*os.File
	out          chan []byte // what the command has printed; closed at its end
	isDiscarding atomic.Bool // out gets nothing more
}

// untilKey is a command of bash that prints "ready" until a line is typed. dtach shows a new viewer nothing of what was
// printed before.
const untilKey = "while ! read -t 0.1 line; do printf ready; done; "

// show runs an attach command.
func show(b *testing.B, attach []string) *viewed {
	b.Helper()
	s := &viewed{File: startBare(b, attach...), out: make(chan []byte, 1024)}
	go func() {
		defer close(s.out)
		buf := make([]byte, 64<<10)
		for {
			n, err := s.Read(buf)
			if err != nil {
				return
			}
			if !s.isDiscarding.Load() {
				s.out <- slices.Clone(buf[:n])
			}
		}
	}()
	return s
}

// showReady runs an attach command until it shows that the program is ready.
func showReady(b *testing.B, attach []string) *viewed {
	b.Helper()
	s := show(b, attach)
	s.await(b, func(got []byte) bool { return bytes.Contains(got, []byte("ready")) })
	return s
}

// await waits until what the command has printed is enough, and returns its length.
func (s *viewed) await(b *testing.B, isEnough func([]byte) bool) int {
	b.Helper()
	var got []byte
	for deadline := time.After(limit); !isEnough(got); {
		select {
		case p, ok := <-s.out:
			if !ok {
				b.Fatalf("the attach command has ended after %q", got)
			}
			got = append(got, p...)
		case <-deadline:
			b.Fatalf("the attach command has printed %q", got)
		}
	}
	return len(got)
}

// echo returns how long a key takes until it is shown.
func (s *viewed) echo(b *testing.B, key byte) time.Duration {
	b.Helper()
	for len(s.out) > 0 {
		<-s.out
	}
	begun := time.Now()
	if _, err := s.Write([]byte{key}); err != nil {
		b.Fatal(err)
	}
	for p := range s.out {
		if bytes.IndexByte(p, key) >= 0 {
			break
		}
	}
	return time.Since(begun)
}

// BenchmarkTerminal measures what a person at a terminal has from Holdfast, from tmux and from dtach, all through their
// attach commands, and from a relay: the time between a key and its echo; how fast a program prints while a viewer is
// attached, with the processor time of the processes that hold it; and the time until an attach command has shown the
// screen, and what it shows of the 1,000 lines above it.
func BenchmarkTerminal(b *testing.B) {
	b.Run("attach", benchmarkAttach)
	b.Run("echo", func(b *testing.B) {
		all := holders(b)
		var terminals []*viewed
		for _, h := range all {
			s := showReady(b, h.start("echo", untilKey+"stty raw -echo; exec cat"))
			if _, err := s.WriteString("\r"); err != nil {
				b.Fatal(err)
			}
			terminals = append(terminals, s)
		}
		took := make([][]time.Duration, len(all))
		for b.Loop() {
			for range echoRounds {
				for i, s := range terminals {
					for k := range echoes / 5 {
						took[i] = append(took[i], s.echo(b, 'a'+byte(k%26)))
						time.Sleep(keyPause)
					}
				}
			}
		}
		for i, h := range all {
			b.ReportMetric(float64(median(took[i]).Microseconds()), h.name+"-p50-µs")
			b.ReportMetric(float64(took[i][len(took[i])*99/100].Microseconds()), h.name+"-p99-µs")
		}
		b.ReportMetric(0, "ns/op")
	})
	b.Run("drain", func(b *testing.B) {
		all := holders(b)
		file := filepath.Join(b.TempDir(), "text")
		testkit.Must(b, os.WriteFile(file, text(terminalBytes), 0o600))
		var drains []func()
		for _, h := range all {
			drains = append(drains, startDrain(b, h, file))
		}
		speeds, costs := make([][]float64, len(all)), make([][]float64, len(all))
		for b.Loop() {
			for range drainRounds {
				for i, h := range all {
					before, begun := cpuOf(b, h.pids()), time.Now()
					drains[i]()
					speeds[i] = append(speeds[i], terminalBytes/1e6/time.Since(begun).Seconds())
					costs[i] = append(costs[i], float64(cpuOf(b, h.pids())-before)/terminalBytes)
				}
			}
		}
		for i, h := range all {
			b.ReportMetric(median(speeds[i]), h.name+"-MB/s")
			b.ReportMetric(median(costs[i]), h.name+"-ns/B")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// benchmarkAttach measures the time from the start of an attach command to the last byte of the screen. dtach shows
// none. Each line has 78 characters.
func benchmarkAttach(b *testing.B) {
	const end = "the end"
	isShown := func(got []byte) bool { return bytes.Contains(got, []byte(end)) }
	script := fmt.Sprintf("for i in {1..1100}; do printf '%%078d\\n' $i; done; printf '%s'; exec sleep 1000", end)
	all := holders(b)[:2] // Holdfast and tmux
	var commands [][]string
	for _, h := range all {
		commands = append(commands, h.start("attach", script))
	}
	length := 0
	testkit.Eventually(b, limit, func() bool { // the whole history is there
		s := show(b, commands[0])
		defer s.Close()
		length = s.await(b, isShown)
		return length > 78*1000
	}, "the session has printed its lines")
	took := make([][]time.Duration, 3)
	measure := func(i int, attach []string, isEnough func([]byte) bool) {
		begun := time.Now()
		s := show(b, attach)
		s.await(b, isEnough)
		took[i] = append(took[i], time.Since(begun))
		_ = s.Close()
	}
	relays := relayHolder(b, length)
	for b.Loop() {
		for k := range starts {
			for i, attach := range commands {
				measure(i, attach, isShown)
			}
			measure(2, relays.start(fmt.Sprint("attach", k), "exec sleep 1000"), func(got []byte) bool { return len(got) >= length })
		}
	}
	for i, name := range []string{"holdfast", "tmux", "relay"} {
		b.ReportMetric(float64(median(took[i]).Microseconds()), name+"-p50-µs")
	}
	b.ReportMetric(float64(length), "bytes")
	b.ReportMetric(0, "ns/op")
}

// startDrain starts a program that prints the file each time drain is called, and shows it. drain returns when the
// program has printed it.
func startDrain(b *testing.B, h holder, file string) (drain func()) {
	b.Helper()
	fifo := filepath.Join(b.TempDir(), "printed")
	testkit.Must(b, syscall.Mkfifo(fifo, 0o600))
	s := showReady(b, h.start("drain", untilKey+fmt.Sprintf("while cat %s; do echo >%s; read line; done", file, fifo)))
	s.isDiscarding.Store(true)
	return func() {
		if _, err := s.WriteString("\r"); err != nil {
			b.Fatal(err)
		}
		if _, err := os.ReadFile(fifo); err != nil {
			b.Fatal(err)
		}
	}
}
