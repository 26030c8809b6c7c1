package chaos

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// A verdict has an error for each promise that a client breaks, and none for one that keeps all.
func TestJudge(t *testing.T) {
	p := newProbe(7, 0, t.TempDir())
	printed := runToStop(t, p, "a b ")
	part := func(from, to int) report { return report{Received: printed[from:to]} }
	end := len(printed)
	typed, exit := report{Typed: "a b " + stopKey}, report{ExitCode: &p.code}
	other := p.code + 1
	for name, tt := range map[string]struct {
		reports []report
		want    string // in the only error; "" if there is none
	}{
		"all":                   {[]report{typed, {Received: []byte("\x1b[H\x1b[2J")}, part(0, 100), part(100, end), exit}, ""},
		"each byte alone":       {append(eachByte(printed), typed, exit), ""},
		"output missing":        {[]report{typed, part(0, 100), part(200, end), exit}, "at byte 100 the app received"},
		"output twice":          {[]report{typed, part(0, 100), part(64, end), exit}, "at byte 100 the app received"},
		"end of output missing": {[]report{typed, part(0, end-1), exit}, "bytes, and the app received"},
		"beginning missing":     {[]report{typed, part(1, end), exit}, "the app received"},
		"key missing":           {[]report{{Typed: "a bc " + stopKey}, part(0, end), exit}, "the app typed 6 bytes, 5 arrived, and the first 3 are the same"},
		"key twice":             {[]report{{Typed: "a " + stopKey}, part(0, end), exit}, "the app typed 3 bytes, 5 arrived"},
		"no exit":               {[]report{typed, part(0, end)}, "the app reports the exits []"},
		"two exits":             {[]report{typed, part(0, end), exit, exit}, "the app reports the exits"},
		"other exit":            {[]report{typed, part(0, end), {ExitCode: &other}}, "the app reports the exits"},
	} {
		t.Run(name, func(t *testing.T) {
			one := newProbe(7, 0, filepath.Dir(p.file))
			for _, rep := range tt.reports {
				testkit.Must(t, one.take(rep))
			}
			v := (&run{probes: []*probe{one}}).judge()
			if v.OK != (tt.want == "") || v.OK != (len(v.Errors) == 0) || !v.OK && (len(v.Errors) > 1 || !strings.Contains(v.Errors[0], tt.want)) {
				t.Errorf("%+v", v)
			}
		})
	}
	if v := (&run{probes: []*probe{newProbe(8, 0, t.TempDir())}}).judge(); v.OK || !strings.Contains(strings.Join(v.Errors, " "), "it did not exit at the stop key") {
		t.Errorf("a probe that never ran: %+v", v)
	}
}

func eachByte(data []byte) (all []report) {
	for n := range data {
		all = append(all, report{Received: data[n : n+1]})
	}
	return all
}

// runToStop runs the program of a probe until it has printed 10 lines and the stop key has arrived, and returns its
// output.
func runToStop(t *testing.T, p *probe, keys string) []byte {
	t.Helper()
	in, input := io.Pipe()
	output, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- runProbe(in, out, p.file, p.seed)
		_ = out.Close()
	}()
	if _, err := io.WriteString(input, keys); err != nil {
		t.Fatal(err)
	}
	printed := make([]byte, 10*lineLen)
	if _, err := io.ReadFull(output, printed); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(input, stopKey) }() // the probe may be printing
	remaining, err := io.ReadAll(output)
	testkit.Must(t, err)
	testkit.Must(t, <-ended)
	return append(printed, remaining...)
}

// Each part of a probe's output is the same, whichever offset it begins at, and its lines differ.
func TestTranscript(t *testing.T) {
	all := transcript(3, 0, 100*lineLen)
	for _, at := range []int{0, 1, lineLen - 1, lineLen, 5000} {
		if part := transcript(3, at, 500); !bytes.Equal(part, all[at:at+500]) {
			t.Errorf("from %d: %q", at, part)
		}
	}
	lines := bytes.SplitAfter(all, []byte("\n"))
	if len(lines) != 101 || len(lines[0]) != lineLen || bytes.Equal(lines[0][13:], lines[1][13:]) || bytes.Equal(all, transcript(4, 0, len(all))) {
		t.Errorf("%d lines, of which the first are %q", len(lines), lines[:2])
	}
}

// A relay passes bytes on, ends the connections that it cuts, and makes them slow. If the proxy does not serve, it
// closes the app's connection.
func TestRelay(t *testing.T) {
	listen := func(name string) (net.Listener, func() (net.Conn, error)) {
		path := filepath.Join(t.TempDir(), name)
		ln, err := net.Listen("unix", path)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = ln.Close() })
		return ln, func() (net.Conn, error) { return net.Dial("unix", path) }
	}
	proxy, dialProxy := listen("p")
	front, dial := listen("f")
	go func() {
		for {
			conn, err := proxy.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	r := NewRelay(front.Accept, func(context.Context) (net.Conn, error) { return dialProxy() })
	echo := func(conn net.Conn) error {
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	connect := func() net.Conn {
		conn, err := dial()
		testkit.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	cut := connect()
	testkit.Must(t, echo(cut))
	r.Cut()
	if err := echo(cut); err == nil {
		t.Error("a connection that was cut continues")
	}
	slow := connect()
	r.Slow(true)
	began := time.Now()
	if err := echo(slow); err != nil || time.Since(began) < 2*slowPiece {
		t.Errorf("slow bytes took %v both ways, %v", time.Since(began), err)
	}
	r.Slow(false)
	_ = proxy.Close()
	if err := echo(connect()); err == nil {
		t.Error("a connection without a proxy is open")
	}
	_ = front.Close()
	r.Close()
	if err := echo(slow); err == nil {
		t.Error("a connection continues after the end of the relay")
	}
}

// A seed determines the faults, and each kind comes once before any comes again.
func TestPicker(t *testing.T) {
	draw := func(seed uint64) (all []string) {
		r := newRun(Options{Seed: seed, Faults: Kinds()})
		for range 3 * len(Kinds()) {
			all = append(all, r.next())
			_ = r.upTo(time.Second)
		}
		return all
	}
	one := draw(1)
	if other := draw(1); strings.Join(one, " ") != strings.Join(other, " ") || strings.Join(one, " ") == strings.Join(draw(2), " ") {
		t.Errorf("%q and %q", one, other)
	}
	seen := map[string]bool{}
	for _, kind := range one[:len(Kinds())] {
		seen[kind] = true
	}
	if len(seen) != len(Kinds()) {
		t.Errorf("the first faults are %q", one)
	}
}
