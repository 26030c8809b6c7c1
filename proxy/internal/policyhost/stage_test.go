//go:build unix

package policyhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/proxy/policy"
	"holdfast/shared/testkit"
)

// limit is the time after which a test fails if an expected event does not come.
const limit = time.Minute

// A stage starts the programs of a test. Each connects to a socket, whose end shows the end of the program.
type stage struct {
	t    *testing.T
	dir  string
	file string // the file of the role
	log  *logs
	came chan *player
}

// A player is one run of a program.
type player struct {
	report
	conn  net.Conn
	asked chan struct{}
	told  chan string
	gone  chan struct{}
}

func newStage(t *testing.T, kind string) *stage {
	t.Helper()
	testkit.CheckLeaks(t)
	s := &stage{t: t, dir: testkit.Dir(t), log: &logs{}, came: make(chan *player, 64)}
	s.file = filepath.Join(s.dir, "role.json")
	ln, err := net.Listen("unix", filepath.Join(s.dir, "life"))
	testkit.Must(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.follow(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		all.Wait() // waits for the end of each program
	})
	s.role(kind)
	return s
}

// role sets the role of the program from its next start on.
func (s *stage) role(kind string) { s.writeRole(s.file, kind) }

func (s *stage) writeRole(file, kind string) {
	s.t.Helper()
	data, err := json.Marshal(role{Kind: kind, Life: filepath.Join(s.dir, "life")})
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	testkit.Must(s.t, err)
}

func (s *stage) follow(conn net.Conn) {
	defer conn.Close()
	p := &player{conn: conn, asked: make(chan struct{}, 4096), told: make(chan string, 4096), gone: make(chan struct{})}
	defer close(p.gone)
	for in := json.NewDecoder(conn); ; {
		var r report
		if in.Decode(&r) != nil {
			return
		}
		switch r.What {
		case "up":
			p.report = r
			s.came <- p
		case "asked":
			p.asked <- struct{}{}
		case "told":
			p.told <- r.Event
		}
	}
}

// config returns a configuration that starts the program, with long time-outs.
func (s *stage) config() Config {
	return Config{
		Path: programPath(s.t), ConfigFile: s.file, Dir: s.dir, Log: zerolog.New(s.log).Level(zerolog.DebugLevel),
		Deadline: limit, StartTime: limit, FirstWait: time.Millisecond,
	}
}

func (s *stage) start(cfg Config) (*Host, *player) {
	s.t.Helper()
	h, err := Start(testkit.Soon(s.t), cfg)
	if err != nil {
		s.t.Fatalf("start: %v\n%s", err, s.log)
	}
	s.t.Cleanup(func() { _ = h.Close() })
	return h, s.next()
}

func (s *stage) next() *player {
	s.t.Helper()
	return testkit.Within(s.t, limit, "a program's start", s.came)
}

func (p *player) kill(t *testing.T, sig syscall.Signal) {
	t.Helper()
	testkit.Must(t, syscall.Kill(p.PID, sig))
}

func (p *player) open(t *testing.T) {
	t.Helper()
	if _, err := p.conn.Write([]byte("open\n")); err != nil {
		t.Fatal(err)
	}
}

// running waits until a program answers.
func running(t *testing.T, h *Host) {
	t.Helper()
	testkit.Eventually(t, limit, func() bool { return h.Stats().Running }, "the policy runs again")
}

func down(t *testing.T, h *Host) {
	t.Helper()
	testkit.Eventually(t, limit, func() bool { return !h.Stats().Running }, "the policy does not run")
}

func auth(t *testing.T, h *Host, token string) error {
	t.Helper()
	_, err := h.Authenticate(testkit.Soon(t), policy.Credentials{Token: token, UID: -1})
	return err
}

func wantUnavailable(t *testing.T, what string, err error) *protocol.Error {
	t.Helper()
	var e *protocol.Error
	if !errors.As(err, &e) || e.Code != protocol.CodePolicyUnavailable || !e.Retryable || e.RetryAfterMS < 1 {
		t.Fatalf("%s: got %+v, want a retryable policy_unavailable", what, err)
	}
	return e
}

// logs keeps the log.
type logs struct{ testkit.Log }

// with returns the log lines with a message.
func (l *logs) with(message string) (lines []map[string]any) {
	for text := range strings.Lines(l.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			panic(fmt.Sprintf("%q: %v", text, err))
		}
		if line["message"] == message {
			lines = append(lines, line)
		}
	}
	return lines
}

func (l *logs) wait(t *testing.T, message string, n int) []map[string]any {
	t.Helper()
	testkit.Eventually(t, limit, func() bool { return len(l.with(message)) >= n }, fmt.Sprintf("%d lines %q", n, message))
	return l.with(message)
}
