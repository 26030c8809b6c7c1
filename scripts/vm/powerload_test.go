//go:build linux

package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A guest is the machine whose power is cut, seen from inside. It reads commands from a serial line, and
// sends reports on it.
type guest struct {
	*machine
	line     *os.File
	commands *bufio.Scanner
}

// obeyPower runs in the machine. It checks the sessions that the previous cut has left, and then prints until
// the power is cut.
func obeyPower(t *testing.T) {
	for name, value := range map[string]string{"DIR": "/disk/holdfast", "DURABLE": "screen", "WEB": "", "CAGE": "off"} {
		t.Setenv("HOLDFAST_"+name, value)
	}
	line, err := os.OpenFile(linePath, os.O_RDWR, 0)
	testkit.Must(t, err)
	g := &guest{machine: &machine{t: t}, line: line, commands: bufio.NewScanner(line)}
	// The machine's state is saved while this loop runs, and each round continues it.
	up := time.NewTicker(50 * time.Millisecond)
	go func() {
		for range up.C {
			g.say("up")
		}
	}()
	for g.commands.Scan() {
		switch words := strings.Fields(g.commands.Text()); words[0] {
		case "mount":
			up.Stop()
			g.mount()
		case "check":
			g.check(words[1:])
			g.say("checked")
		case "load":
			g.load(words[1])
		case "end":
			return
		}
	}
	t.Fatalf("the line has ended: %v", g.commands.Err())
}

// mount mounts the disk, and makes the kernel write early, so that more data is written but not flushed.
func (g *guest) mount() {
	g.run("mount-disk")
	for name, centiseconds := range map[string]string{"dirty_writeback_centisecs": "5", "dirty_expire_centisecs": "10"} {
		testkit.Must(g.t, os.WriteFile("/proc/sys/vm/"+name, []byte(centiseconds), 0))
	}
}

// say sends a report. Each report is one write, so that reports of several processes do not mix.
func (g *guest) say(format string, args ...any) {
	if _, err := fmt.Fprintf(g.line, format+"\n", args...); err != nil {
		g.t.Fatal(err)
	}
}

// reportFailure reports a failure. The check continues.
func (g *guest) reportFailure(format string, args ...any) {
	g.say("bad %s", strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", `\n`))
}

// check starts the programs, and compares all sessions that they list with the expected ones.
func (g *guest) check(expected []string) {
	serve := exec.Command("proxy", "serve")
	testkit.Must(g.t, serve.Start())
	// The commands of proxy wait only for 15 s, which can be too short on this machine.
	c, err := client.Dial(g.t.Context(), client.Options{Name: "vm", Redial: limit, Start: func(context.Context) error { return nil }})
	testkit.Must(g.t, err)
	g.c = c
	found := map[string]protocol.SessionInfo{}
	var missing []string
	if !testkit.Poll(limit, func() bool {
		list, err := c.List(g.t.Context(), "")
		for _, s := range list {
			found[string(s.ID)] = s
		}
		missing = slices.DeleteFunc(slices.Clone(expected), func(id string) bool { return found[id].ID != "" })
		return err == nil && len(missing) == 0
	}) {
		g.reportFailure("%v are not listed", missing)
	}
	for id, s := range found {
		if s.State != protocol.StateLost || s.Lost == nil {
			g.reportFailure("session %s is %s, want lost", id, s.State)
			continue
		}
		g.say("lost %s %d", id, s.Lost.Offset)
		g.checkScreen(&s)
	}
	for id, s := range found {
		if strings.HasPrefix(id, "quiet") {
			g.revive(&s)
		}
		if err := g.c.Forget(g.t.Context(), s.ID); err != nil {
			g.reportFailure("forget %s: %v", id, err)
		}
	}
}

// checkScreen compares the screen of a lost session with the screen at its offset.
func (g *guest) checkScreen(s *protocol.SessionInfo) {
	kind, _, _ := strings.Cut(string(s.ID), "-")
	shown, err := g.c.Scrollback(g.t.Context(), s.ID)
	if err != nil {
		g.reportFailure("%s has no screen: %v", s.ID, err)
		return
	}
	text := strings.TrimRight(strings.Join(shown, "\n"), "\n")
	switch offset := int(s.Lost.Offset); kind {
	case "flood", "full", "drip":
		g.checkNumbers(s, shown)
	case "quiet":
		if text != quietText {
			g.reportFailure("the screen of %s is %q", s.ID, text)
		}
	case "born":
		if want := "born " + string(s.ID); offset > 0 && text != (want + "\n")[:min(offset, len(want))] {
			g.reportFailure("the screen of %s at offset %d is %q", s.ID, offset, text)
		}
	default:
		g.checkDrawing(s)
	}
}

const quietText = "printed before the silence"

// checkNumbers compares a screen and its history with the lines of the stream numbers.
func (g *guest) checkNumbers(s *protocol.SessionInfo, shown []string) {
	offset := int(s.Lost.Offset)
	want := offset / lineBytes
	last := fmt.Sprintf("%08d\r", want)[:min(offset%lineBytes, 8)]
	for len(shown) > 0 && shown[len(shown)-1] == "" {
		shown = shown[:len(shown)-1]
	}
	if last != "" {
		if len(shown) == 0 || shown[len(shown)-1] != last {
			g.reportFailure("%s at offset %d ends with %q, want %q", s.ID, offset, shown[max(0, len(shown)-1):], last)
			return
		}
		shown = shown[:len(shown)-1]
	}
	if len(shown) < min(want, s.Size.Rows-1) {
		g.reportFailure("%s at offset %d has %d lines", s.ID, offset, len(shown))
	}
	for i := len(shown) - 1; i >= 0; i-- {
		if want--; shown[i] != fmt.Sprintf("%08d", want) {
			g.reportFailure("the screen of %s at offset %d contains %q, want %08d", s.ID, offset, shown[i], want)
			return
		}
	}
}

// checkDrawing compares a screen with the screen of a session that has printed the same output since the
// previous chunk. That is sufficient, because the first bytes of a chunk reset the terminal.
func (g *guest) checkDrawing(s *protocol.SessionInfo) {
	length, offset := streams["drawing"].bytes, int(s.Lost.Offset)
	if offset == 0 {
		return
	}
	isStepped := strings.HasPrefix(string(s.ID), "step")
	chunk, size := (offset-1)/length, s.Size
	first := max(chunk-1, 0)
	argv := []string{"/bin/guest", "-generate=drawing", fmt.Sprint("-from=", first), fmt.Sprint("-until=", offset)}
	if isStepped {
		size, argv = stepSize(first), steps(argv...)
	}
	id := protocol.SessionID("as-" + s.ID)
	_, err := g.c.Spawn(g.t.Context(), client.SpawnRequest{ID: id, SpawnSpec: protocol.SpawnSpec{
		Argv: argv, Cwd: "/", Cols: size.Cols, Rows: size.Rows, Durable: protocol.DurableOff,
	}})
	testkit.Must(g.t, err)
	if isStepped && first < chunk {
		g.prints(id, uint64(length))
		g.step(id, stepSize(chunk))
	}
	g.prints(id, uint64(offset-first*length))
	if isStepped && s.Size == stepSize(chunk+1) && offset%length == 0 {
		g.resize(id, s.Size)
	}
	if got, want := g.cells(s.ID), g.cells(id); got != want {
		g.reportFailure("the screen of %s at offset %d, %s, is\n%s\nwant\n%s", s.ID, offset, s.Size, got, want)
	}
	testkit.Must(g.t, g.c.Terminate(g.t.Context(), id, client.End{}))
	g.awaitEnd(id)
	testkit.Must(g.t, g.c.Forget(g.t.Context(), id))
}

// steps returns the command line of a generator that prints its first chunk at once, and each further chunk
// after a line of input, without echo.
func steps(argv ...string) []string {
	return []string{"sh", "-c", "stty -echo; exec " + strings.Join(argv, " ") + " -stepped"}
}

// step makes a generator print its next chunk at another size.
func (g *guest) step(id protocol.SessionID, size protocol.Size) {
	g.resize(id, size)
	g.input(id, "\n")
}

func (g *guest) resize(id protocol.SessionID, size protocol.Size) {
	testkit.Must(g.t, g.c.Resize(g.t.Context(), id, size.Cols, size.Rows))
}

// prints waits until a session has printed end bytes.
func (g *guest) prints(id protocol.SessionID, end uint64) {
	testkit.Eventually(g.t, limit, func() bool {
		now, err := g.c.Screen(g.t.Context(), id, client.ScreenOptions{Lines: 1})
		return err == nil && now.Offset == end
	}, fmt.Sprintf("%s has printed %d bytes", id, end))
}

// cells returns the whole screen, without its instance, offset and mode of the input.
func (g *guest) cells(id protocol.SessionID) string {
	c, err := g.c.Screen(g.t.Context(), id, client.ScreenOptions{Format: protocol.ScreenCells})
	testkit.Must(g.t, err)
	c.Instance, c.Offset, c.Input = "", 0, "" // Input is a mode of the terminal, which a lost session does not have
	text, err := json.Marshal(c)
	testkit.Must(g.t, err)
	return string(text)
}

// revive starts a lost session again, which must show the old lines.
func (g *guest) revive(s *protocol.SessionInfo) {
	now, err := g.c.Reopen(g.t.Context(), s.ID, protocol.RespawnSpec{Argv: []string{"sh", "-c", "echo back; exec cat"}, KeepScreen: true}, nil)
	if err != nil || now.Session.Instance == s.Instance {
		g.reportFailure("%s is not revived: %+v, %v", s.ID, now, err)
		return
	}
	g.sees(s.ID, "back")
	shown, err := g.c.Scrollback(g.t.Context(), s.ID)
	if text := strings.Join(shown, "\n"); err != nil || !strings.HasPrefix(text, quietText+"\n── the machine stopped") {
		g.reportFailure("the screen of the revived %s is %q, %v", s.ID, text, err)
	}
	testkit.Must(g.t, g.c.Terminate(g.t.Context(), s.ID, client.End{}))
	g.awaitEnd(s.ID)
}

// stepSize returns the size of a stepped session while it prints a chunk.
func stepSize(chunk int) protocol.Size {
	return protocol.Size{Cols: 30 + 17*(chunk%5), Rows: 10 + 7*(chunk%3)}
}

// load starts sessions, and then starts and resizes more sessions until the power is cut.
func (g *guest) load(round string) {
	start := func(kind string, mode protocol.Durable, argv ...string) protocol.SessionID {
		id := protocol.SessionID(kind + "-" + round)
		if argv[0] == "generate" {
			argv = append([]string{"/bin/guest", "-name=" + string(id)}, argv[1:]...)
		}
		none := time.Duration(0)
		size := stepSize(0)
		if _, err := g.c.Spawn(g.t.Context(), client.SpawnRequest{ID: id, EarlyExit: &none, SpawnSpec: protocol.SpawnSpec{
			Argv: argv, Cwd: "/", Durable: mode, Cols: size.Cols, Rows: size.Rows,
		}}); err != nil {
			g.t.Fatal(err)
		}
		g.say("born %s", id)
		return id
	}
	start("quiet", protocol.DurableScreen, "sh", "-c", "printf '"+quietText+"'; exec sleep 1000")
	start("flood", protocol.DurableScreen, "generate", "-generate=numbers")
	start("full", protocol.DurableFull, "generate", "-generate=numbers", "-pause=10ms")
	start("drip", protocol.DurableScreen, "generate", "-generate=numbers", "-pause=300ms")
	start("drawscreen", protocol.DurableScreen, "generate", "-generate=drawing", "-pause=5ms")
	start("drawfull", protocol.DurableFull, "generate", "-generate=drawing", "-pause=5ms")
	argv := steps("/bin/guest", "-name=step-"+round, "-generate=drawing")
	stepped := start("step", protocol.DurableFull, argv...)
	g.say("loaded")
	for n := 1; ; n++ {
		g.prints(stepped, uint64(n*streams["drawing"].bytes))
		if n%3 == 0 {
			id := fmt.Sprint("born-", n)
			start(id, protocol.DurableScreen, "sh", "-c", "printf 'born "+id+"-"+round+"'; exec sleep 1000")
		}
		time.Sleep(50 * time.Millisecond)
		g.step(stepped, stepSize(n))
	}
}
