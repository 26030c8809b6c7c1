//go:build unix

package policyhost

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"holdfast/shared/testkit"
)

// The output of a program is logged below one field, whatever it contains.
func TestSays(t *testing.T) {
	s := newStage(t, "served")
	h, _ := s.start(s.config())
	for _, tt := range []struct{ name, said, level, want string }{
		{"hclog", `{"@level":"warn","@message":"low","@timestamp":"2026-01-02T03:04:05.000000Z","n":1,"a":["x"]}`, "warn", `map[a:[x] n:1 text:low]`},
		{"our fields", `{"@level":"info","@message":"m","level":"error","message":"session spawned","session":"s","policy":1,"text":"t"}`, "info",
			`map[level:error message:session spawned policy:1 session:s text:m text_:t]`},
		{"no text", `{"@level":"info","@message":1}`, "info", `map[text:{"@level":"info","@message":1}]`}, // the library would panic at a message without text
		{"other JSON", `{"level":"error"}`, "info", `map[text:{"level":"error"}]`},
		{"a level", "[ERROR] e", "error", `map[text:[ERROR] e]`},
		{"text", "hello\x1b[2J \xff", "info", "map[text:hello\x1b[2J \uFFFD]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(s.log.with("policy says"))
			for _, how := range []string{"print ", "stdout "} {
				if strings.Contains(tt.said, "\xff") && auth(t, h, how+tt.said+"\n") != nil {
					return // an invalid text cannot be sent as a question
				}
				testkit.Must(t, auth(t, h, how+tt.said+"\n"))
			}
			lines := s.log.wait(t, "policy says", before+2)[before:]
			for _, line := range lines {
				if got := fmt.Sprint(line["policy"]); line["level"] != tt.level || got != tt.want {
					t.Errorf("got %s %s, want %s %s", line["level"], got, tt.level, tt.want)
				}
			}
		})
	}
	testkit.Must(t, auth(t, h, "print "+strings.Repeat("x", 3*maxLine)+"\npanic: p\n\nstack\n"))
	testkit.Eventually(t, limit, func() bool {
		lines := s.log.with("policy says")
		return fmt.Sprint(lines[len(lines)-1]["policy"]) == "map[text:stack]"
	}, "the last line")
	lines := s.log.with("policy says")
	lines = lines[len(lines)-3:]
	if n := len(fmt.Sprint(lines[0]["policy"])); n != maxLine+len("map[text:]") || lines[0]["missed"] != 2.0*maxLine {
		t.Errorf("got a line of %d bytes, %v missed", n, lines[0]["missed"])
	}
	if lines[1]["level"] != "error" || lines[2]["level"] != "error" {
		t.Errorf("got %v, want a panic and its stack at error", lines[1:])
	}
	if len(s.log.with("policy's library says")) == 0 {
		t.Error("the messages of the library are not logged")
	}
}

// If a program prints very much, lines are dropped, and their number is logged.
func TestFlood(t *testing.T) {
	s := newStage(t, "served")
	h, _ := s.start(s.config())
	const many = 20_000
	testkit.Must(t, auth(t, h, "print "+strings.Repeat("x\n", many-1)+"last\n"))
	testkit.Eventually(t, limit, func() bool { return h.says.lastLine() == "last" }, "all output is read")
	testkit.Must(t, h.Close())
	said, lost := len(s.log.with("policy says")), 0
	for _, line := range s.log.with("policy printed too many lines; some were dropped") {
		lost += int(line["count"].(float64))
	}
	if said+lost < many || said > many/2 || said < saysBurst {
		t.Errorf("got %d lines and %d dropped of %d", said, lost, many)
	}
}

// A program that prints without end is read slowly, whatever the length of its lines is.
func TestFloodIsSlow(t *testing.T) {
	for _, length := range []int{1, 10, maxLine} {
		synctest.Test(t, func(t *testing.T) {
			l := newSays(zerolog.Nop()).lines()
			line := append(bytes.Repeat([]byte("x"), length-1), '\n')
			const seconds = 10
			began := time.Now()
			for range seconds * readRate / (len(line) + lineCost) / 100 {
				_, _ = l.Write(bytes.Repeat(line, 100)) // always succeeds
			}
			if took := time.Since(began); took < (seconds-2)*time.Second || took > seconds*time.Second {
				t.Errorf("lines of %d bytes took %v, want about %d s", length, took, seconds)
			}
		})
	}
}

// Messages below the log's level do not count for the rate.
func TestFloodBelowTheLevel(t *testing.T) {
	log := &logs{}
	s := newSays(zerolog.New(log).Level(zerolog.InfoLevel))
	l := s.lines()
	for range 10 * saysBurst {
		fmt.Fprintln(l, `{"@level":"debug","@message":"d"}`)
	}
	fmt.Fprint(l, "last")
	l.end()
	if got := log.with("policy says"); len(got) != 1 || len(log.String()) > 200 {
		t.Errorf("got %s, want one line", log)
	}
}
