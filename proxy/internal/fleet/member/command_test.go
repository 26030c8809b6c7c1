package member

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol/gate"
	"holdfast/shared/testkit"
)

const limit = 30 * time.Second

// newCommander returns an agent that runs run as each command, and both ends of the connection of a client.
func newCommander(t *testing.T, run func(args []string, stdout, stderr io.Writer) (int, error)) (a *agent, here, client net.Conn) {
	t.Helper()
	a = &agent{commands: make(chan struct{}, maxCommands), o: Options{
		Log: zerolog.Nop(),
		Run: func(_ context.Context, args []string, stdout, stderr io.Writer) (int, error) {
			return run(args, stdout, stderr)
		},
	}}
	here, client = net.Pipe()
	t.Cleanup(func() { _, _ = here.Close(), client.Close() })
	return a, here, client
}

// The output of a command comes to the client in pieces, in order.
func TestCommandOutput(t *testing.T) {
	text := strings.Repeat("all bytes \x00\xff", 10_000)
	a, here, client := newCommander(t, func(args []string, stdout, stderr io.Writer) (int, error) {
		_, errOut := io.WriteString(stdout, text)
		_, errErr := io.WriteString(stderr, strings.Join(args, " "))
		return 7, errors.Join(errOut, errErr)
	})
	type result struct {
		code int
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		code, err := a.run(t.Context(), &gate.Run{Args: []string{"stop", "--all"}}, &printer{conn: here})
		ended <- result{code, errors.Join(err, here.Close())}
	}()
	var out, errOut strings.Builder
	for {
		m, err := gate.Read(client, gate.MaxAnswer)
		if err != nil {
			break
		}
		p := m.(*gate.Printed)
		if len(p.Stdout) > gate.MaxPrinted {
			t.Errorf("a piece has %d bytes", len(p.Stdout))
		}
		out.Write(p.Stdout)
		errOut.Write(p.Stderr)
	}
	if r := testkit.Within(t, limit, "the command ends", ended); r.code != 7 || r.err != nil {
		t.Errorf("got %+v", r)
	}
	if out.String() != text || errOut.String() != "stop --all" {
		t.Errorf("got %d bytes and %q", out.Len(), errOut.String())
	}
}

// A command runs to its end if its client is lost.
func TestCommandContinues(t *testing.T) {
	wasRun := false
	a, here, client := newCommander(t, func(_ []string, stdout, _ io.Writer) (int, error) {
		for range 100 {
			if _, err := io.WriteString(stdout, "output"); err != nil {
				return 0, err
			}
		}
		wasRun = true
		return 0, nil
	})
	testkit.Must(t, client.Close())
	if code, err := a.run(t.Context(), &gate.Run{Args: []string{"upgrade"}}, &printer{conn: here}); code != 0 || err != nil || !wasRun {
		t.Errorf("got %d, %v, %v", code, err, wasRun)
	}
}

// What an agent does not run, and how many commands it runs.
func TestCommandRefused(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	a, here, _ := newCommander(t, func([]string, io.Writer, io.Writer) (int, error) {
		begun <- true
		<-end
		return 0, nil
	})
	refusal := func(m *gate.Run) gate.Refusal {
		_, err := a.run(t.Context(), m, &printer{conn: here})
		var refused *gate.Refused
		if !errors.As(err, &refused) {
			t.Fatalf("%+v: %v", m, err)
		}
		return refused.Code
	}
	for _, m := range []*gate.Run{
		{}, {Args: []string{"serve"}}, {Args: []string{"--handoff=true"}},
		{Args: []string{"stop", "--on=other"}}, {Args: []string{"stop", "--dir", "/other"}},
		{Args: []string{"handoff", "--foreground"}}, {Args: []string{"stop", "--proxy=other"}},
		{Args: []string{"handoff", "--from-dir", "/other"}}, {Args: []string{"handoff", "--dry-run", "--from-dir=/other"}},
		{Args: append([]string{"doctor"}, make([]string, gate.MaxArgs)...)},
		{Args: []string{"doctor", strings.Repeat("x", gate.MaxArgBytes)}},
	} {
		if code := refusal(m); code != gate.RefusedInvalid {
			t.Errorf("%+v is refused with %s", m, code)
		}
	}
	ended := make(chan error, maxCommands)
	for range maxCommands {
		go func() {
			_, err := a.run(t.Context(), &gate.Run{Args: []string{"status"}}, &printer{conn: here})
			ended <- err
		}()
		testkit.Within(t, limit, "a command begins", begun)
	}
	if code := refusal(&gate.Run{Args: []string{"status"}}); code != gate.RefusedBusy {
		t.Errorf("one command too many is refused with %s", code)
	}
	close(end)
	for range maxCommands {
		if err := testkit.Within(t, limit, "a command ends", ended); err != nil {
			t.Error(err)
		}
	}
}

// An agent refuses a request that is neither a command nor an upgrade.
func TestAnswer(t *testing.T) {
	a, here, client := newCommander(t, nil)
	answered := make(chan error, 1)
	go func() { answered <- a.answer(t.Context(), here) }()
	testkit.Must(t, gate.Write(client, gate.Hosts{}))
	_, err := gate.Read(client, gate.MaxAnswer)
	var refused *gate.Refused
	if !errors.As(err, &refused) || refused.Code != gate.RefusedInvalid {
		t.Errorf("the answer is %v", err)
	}
	if err := testkit.Within(t, limit, "the agent has answered", answered); err != nil {
		t.Error(err)
	}
}
