package testkit

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"path"
	"strings"
	"time"
)

// Mix returns the given number of lines as programs print them on a terminal of 80 to 100 columns: listings
// of "ls -lR --color", errors of compilers, logs with time stamps, and "git diff --color", a few screens of
// each in turn. The same number gives the same bytes. Lines end with a line feed; a terminal adds the
// carriage return.
//
// The words are distributed as in source code: few of them are frequent. Compressed with zstd in pieces of
// 64 KiB, listings take about 7 bytes a line and diffs about 20, like those of real source trees.
func Mix(lines int) []byte {
	m := &mix{r: rand.New(rand.NewPCG(1, 2)), now: time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)}
	for part := 0; bytes.Count(m.b.Bytes(), []byte("\n")) < lines; part++ {
		for range 3 + m.r.IntN(3) {
			[]func(){m.listing, m.compiler, m.log, m.diff}[part%4]()
		}
	}
	all := bytes.SplitAfterN(m.b.Bytes(), []byte("\n"), lines+1)
	return bytes.Join(all[:lines], nil)
}

type mix struct {
	r   *rand.Rand
	b   bytes.Buffer
	now time.Time
}

var mixWords = strings.Fields(`err ctx return nil if s t string range len value key name id path data buf size offset
session client server request reply write read close open start stop state config options token handler reader writer
frame message link output input screen line cursor history snapshot attach detach viewer proxy supervisor keeper entry
index count limit timeout retry deadline cancel error invalid missing unknown closed pending active idle busy ready
first last next previous current total result record event label policy secret archive upload download version
header payload length number column width height colour style palette cache queue worker batch segment block bucket
region cluster node shard replica leader follower term vote commit apply restore backup verify digest checksum merge`)

// word returns a word; the n-th one has a probability of about 1/n.
func (m *mix) word() string {
	n := math.Pow(float64(len(mixWords)), m.r.Float64())
	return mixWords[min(int(n)-1, len(mixWords)-1)]
}

// name returns two words as the name of a function.
func (m *mix) name() string {
	w := m.word()
	return m.word() + strings.ToUpper(w[:1]) + w[1:]
}

func (m *mix) printf(format string, args ...any) { fmt.Fprintf(&m.b, format+"\n", args...) }

// pick returns one of the strings.
func (m *mix) pick(of ...string) string { return of[m.r.IntN(len(of))] }

// file returns the path of a source file.
func (m *mix) file() string {
	return path.Join(m.pick("internal", "cmd", "pkg"), m.word(), m.word()+m.pick(".go", "_test.go", "_linux.go"))
}

// listing prints a directory as "ls -lR --color" does.
func (m *mix) listing() {
	m.printf("src/%s:", path.Dir(m.file()))
	m.printf("total %d", m.r.IntN(400)*4)
	for range 10 + m.r.IntN(20) {
		size, day := int(math.Exp(4+8*m.r.Float64())), 1+m.r.IntN(9)
		switch m.r.IntN(8) {
		case 0:
			m.printf("drwxr-xr-x 2 user user %7d Sep %2d 14:%02d \x1b[0m\x1b[01;34m%s\x1b[0m", 4096, day, m.r.IntN(60), m.word())
		case 1:
			m.printf("-rwxr-xr-x 1 user user %7d Sep %2d 14:%02d \x1b[01;32m%s.sh\x1b[0m", size, day, m.r.IntN(60), m.word())
		default:
			m.printf("-rw-r--r-- 1 user user %7d Sep %2d 14:%02d %s%s.go", size, day, m.r.IntN(60), m.word(), m.pick("", "", "_test", "_"+m.word()))
		}
	}
	m.printf("")
}

// compiler prints errors of a C or a Go compiler.
func (m *mix) compiler() {
	file, line := m.file(), 1
	m.printf("# example.com/%s", path.Dir(file))
	for range 8 {
		line += m.r.IntN(60)
		at := 8 + m.r.IntN(20)
		switch name := m.name(); m.r.IntN(4) {
		case 0:
			m.printf("./%s:%d:%d: undefined: %s", file, line, at, name)
		case 1:
			m.printf("./%s:%d:%d: cannot use %s (variable of type *%s) as %s value in argument to %s.%s", file, line, at, m.word(), name, m.name(), m.word(), name)
		case 2:
			m.printf("./%s:%d:%d: declared and not used: %s", file, line, at, m.word())
		default:
			m.printf("\x1b[01m\x1b[K%s.c:%d:%d:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kimplicit declaration of function '\x1b[01m\x1b[K%s\x1b[m\x1b[K'", m.word(), line, at, name)
			m.printf("%5d | %s%s = \x1b[01;31m\x1b[K%s\x1b[m\x1b[K(%s, %s);", line, strings.Repeat(" ", 8), m.word(), name, m.word(), m.word())
			m.printf("      | %s\x1b[01;31m\x1b[K^%s\x1b[m\x1b[K", strings.Repeat(" ", 8+at/2), strings.Repeat("~", len(name)-1))
		}
	}
}

// log prints lines of the log of a server.
func (m *mix) log() {
	for range 25 {
		m.now = m.now.Add(time.Duration(m.r.IntN(400)) * time.Millisecond)
		level := m.pick("\x1b[32mINF\x1b[0m", "\x1b[32mINF\x1b[0m", "\x1b[32mINF\x1b[0m", "\x1b[33mWRN\x1b[0m", "\x1b[1m\x1b[31mERR\x1b[0m\x1b[0m")
		m.printf("\x1b[90m%s\x1b[0m %s %s %s \x1b[36m%s=\x1b[0m%d \x1b[36m%s=\x1b[0m%s", m.now.Format("2006-01-02T15:04:05.000Z"), level,
			m.pick("request served", "request refused", "session attached", "session detached", "connection closed", "batch committed"),
			m.word(), m.pick("took", "bytes", "n"), int(math.Exp(9*m.r.Float64())), m.pick("id", "path", "user"), m.name())
	}
}

// diff prints a part of a file as "git diff --color" does.
func (m *mix) diff() {
	file := m.file()
	m.printf("\x1b[1mdiff --git a/%s b/%s\x1b[m", file, file)
	m.printf("\x1b[1mindex %08x..%08x 100644\x1b[m", m.r.Uint32(), m.r.Uint32())
	m.printf("\x1b[1m--- a/%s\x1b[m", file)
	m.printf("\x1b[1m+++ b/%s\x1b[m", file)
	m.printf("\x1b[36m@@ -%d,%d +%d,%d @@\x1b[m func %s(%s %s) error {", m.r.IntN(400), 12, m.r.IntN(400), 14, m.name(), m.word(), m.word())
	for range 20 {
		code := m.code()
		switch m.r.IntN(5) {
		case 0:
			m.printf("\x1b[32m+\x1b[m\x1b[32m%s\x1b[m", code)
		case 1:
			m.printf("\x1b[31m-%s\x1b[m", code)
		default:
			m.printf(" %s", code)
		}
	}
}

// code returns a line of a program.
func (m *mix) code() string {
	tab := strings.Repeat("\t", 1+m.r.IntN(3))
	switch m.r.IntN(7) {
	case 0:
		return fmt.Sprintf("%sif err := %s.%s(ctx, %s); err != nil {", tab, m.word(), m.name(), m.word())
	case 1:
		return tab + "\treturn err"
	case 2:
		return tab + "}"
	case 3:
		return fmt.Sprintf("%s%s, err := %s.%s(%s.%s)", tab, m.word(), m.word(), m.name(), m.word(), m.word())
	case 4:
		return fmt.Sprintf("%s// %s must not %s the %s before the %s of its %s is %s.", tab, m.name(), m.word(), m.word(), m.word(), m.word(), m.word())
	case 5:
		return fmt.Sprintf("%sfor i, %s := range %s.%s {", tab, m.word(), m.word(), m.word())
	default:
		return fmt.Sprintf("%s%s.%s = append(%s.%s, %s(%s, %d))", tab, m.word(), m.word(), m.word(), m.word(), m.name(), m.word(), m.r.IntN(100))
	}
}
