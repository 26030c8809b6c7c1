package mcp

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/shared/testkit"
)

// A line that is no message is answered with an error, and the agent is served further.
func TestWrongLines(t *testing.T) {
	in, agentOut := io.Pipe()
	agentIn, out, err := os.Pipe()
	testkit.Must(t, err)
	testkit.Must(t, agentIn.SetReadDeadline(time.Now().Add(20*time.Second)))
	done := make(chan error)
	go func() { done <- Run(t.Context(), Options{Control: ControlNone, In: in, Out: out}) }()
	answers := bufio.NewScanner(agentIn)
	const ping = `{"jsonrpc":"2.0","id":3,"method":"ping"}`
	long := func(length int) string { return "{" + strings.Repeat(" ", length-len(ping)) + ping[1:] }
	for _, tt := range []struct {
		line string
		code int // of the answer's error; 0: the answer is a result
	}{
		{"hello", parseError},
		{`{"jsonrpc":"2.0","id":1,`, parseError},
		{"\x00\xff", parseError},
		{"5", invalidRequest},
		{"{}", invalidRequest},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, invalidRequest},
		{"\n\r\n" + `{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, 0},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + "hello", parseError},
		{ping, 0},
		{long(maxLine + 1), invalidRequest},
		{long(2*maxLine + 1), invalidRequest},
		{ping, 0},
		{"[]", invalidRequest},
		{"[1]", invalidRequest},
		{`[[{"jsonrpc":"2.0","id":4,"method":"ping"}]]`, invalidRequest},
		{`[{"jsonrpc":"2.0","id":4,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"}]`, 0},
	} {
		if _, err := io.WriteString(agentOut, tt.line+"\n"); err != nil {
			t.Fatal(err)
		}
		if !answers.Scan() {
			t.Fatalf("no answer to %q: %v", tt.line, answers.Err())
		}
		var answer struct {
			Error  struct{ Code int }
			Result json.RawMessage
		}
		if err := json.Unmarshal(answers.Bytes(), &answer); err != nil || answer.Error.Code != tt.code || (answer.Result == nil) != (tt.code != 0) {
			t.Errorf("the answer to %q is %s, %v", tt.line, answers.Text(), err)
		}
	}
	if err := agentOut.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The end of an agent's input is reported when its calls are answered, or some time later.
func TestLastCalls(t *testing.T) {
	for _, isAnswered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			out := newLineWriter(closer{io.Discard})
			call := `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
			in := newLineReader(io.NopCloser(strings.NewReader(call+"hello")), out)
			got := make([]byte, len(call))
			if _, err := io.ReadFull(in, got); err != nil || string(got) != call {
				t.Fatal(string(got), err)
			}
			began, ended := time.Now(), make(chan error, 1)
			go func() {
				_, err := in.Read(got)
				ended <- err
			}()
			synctest.Wait()
			if len(ended) > 0 {
				t.Error("the end is reported before the answer")
			}
			want := lastCalls
			if isAnswered {
				want = 0
				if _, err := out.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n")); err != nil {
					t.Error(err)
				}
			}
			if err := <-ended; err != io.EOF || time.Since(began) != want {
				t.Errorf("the end is reported after %v, not %v: %v", time.Since(began), want, err)
			}
		})
	}
}

type closer struct{ io.Writer }

func (closer) Close() error { return nil }

// An agent that does not read the answers to many calls is not read on; if it reads them, it is. Neither is so for a few calls.
func TestUnreadAnswers(t *testing.T) {
	for _, calls := range []int64{0, maxCalls} {
		agentIn, out := io.Pipe()
		w := newLineWriter(out)
		w.calls.Store(calls)
		r := newLineReader(io.NopCloser(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")), w)
		written, read := make(chan error, 1), make(chan error, 1)
		go func() { _, err := w.Write([]byte("an answer\n")); written <- err }()
		_, err := agentIn.Read(make([]byte, 1)) // so that the write has begun
		testkit.Must(t, err)
		go func() { _, err := r.Read(make([]byte, 100)); read <- err }()
		if calls == 0 {
			testkit.Must(t, <-read)
			agentIn.Close()
			continue
		}
		select {
		case err := <-read:
			t.Errorf("a line is read although an answer is not: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		_, err = io.ReadFull(agentIn, make([]byte, len("an answer\n")-1))
		testkit.Must(t, err)
		testkit.Must(t, <-written)
		testkit.Must(t, <-read)
	}
}
