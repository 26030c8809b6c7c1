package protocol_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/protocol/link"
)

// Zero columns mean 80, and zero rows mean 24, independently.
//
// demand: M1
func TestSizeNormalize(t *testing.T) {
	tests := []struct {
		name     string
		in, want protocol.Size
	}{
		{name: "both zero", want: protocol.Size{Cols: 80, Rows: 24}},
		{name: "zero columns", in: protocol.Size{Rows: 50}, want: protocol.Size{Cols: 80, Rows: 50}},
		{name: "zero rows", in: protocol.Size{Cols: 132}, want: protocol.Size{Cols: 132, Rows: 24}},
		{name: "none zero", in: protocol.Size{Cols: 1, Rows: 1}, want: protocol.Size{Cols: 1, Rows: 1}},
		{name: "negative", in: protocol.Size{Cols: -5, Rows: -1}, want: protocol.Size{Cols: 80, Rows: 24}},
		{name: "the largest", in: protocol.Size{Cols: protocol.MaxCols, Rows: protocol.MaxRows}, want: protocol.Size{Cols: 2000, Rows: 1000}},
		{name: "too large", in: protocol.Size{Cols: 1 << 30, Rows: 1001}, want: protocol.Size{Cols: 2000, Rows: 1000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.in.Normalize(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got := (protocol.SpawnSpec{Cols: tt.in.Cols, Rows: tt.in.Rows}).Size(); got != tt.want {
				t.Errorf("SpawnSpec.Size: got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestIDs(t *testing.T) {
	for _, id := range []string{"a", "Z9_-", "-", strings.Repeat("x", protocol.MaxIDLen)} {
		if err := protocol.SessionID(id).Validate(); err != nil || !protocol.ValidID(id) {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"", "a b", "ä", "a/b", "..", "a\x00", "a\n", strings.Repeat("x", protocol.MaxIDLen+1)} {
		if err := protocol.ValidateWriter(id); protocol.CodeOf(err) != protocol.CodeInvalidArgument || protocol.ValidID(id) {
			t.Errorf("%q: got %v, want invalid_argument", id, err)
		}
	}
	if a, b := protocol.NewInstance(), protocol.NewInstance(); a == b || len(a) != 16 || !protocol.ValidID(string(a)) {
		t.Errorf("NewInstance returns %q and %q", a, b)
	}
}

func TestSpawnSpecValidate(t *testing.T) {
	sh := []string{"/bin/sh"}
	labels := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint(i)] = ""
		}
		return m
	}
	tests := []struct {
		name string
		spec protocol.SpawnSpec
		want protocol.Code
	}{
		{name: "all", spec: protocol.SpawnSpec{Argv: []string{"sh", "-c", ""}, Cwd: "/", Env: []string{"A=", "B=c=d"}, Labels: labels(protocol.MaxLabels)}},
		{name: "nothing", want: protocol.CodeInvalidArgument},
		{name: "empty program", spec: protocol.SpawnSpec{Argv: []string{"", "x"}}, want: protocol.CodeInvalidArgument},
		{name: "NUL in argv", spec: protocol.SpawnSpec{Argv: []string{"sh", "\x00"}}, want: protocol.CodeInvalidArgument},
		{name: "NUL in env", spec: protocol.SpawnSpec{Argv: sh, Env: []string{"A=\x00"}}, want: protocol.CodeInvalidArgument},
		{name: "NUL in cwd", spec: protocol.SpawnSpec{Argv: sh, Cwd: "/\x00"}, want: protocol.CodeInvalidArgument},
		{name: "other text in argv", spec: protocol.SpawnSpec{Argv: []string{"rm", "é\uFFFD"}, Cwd: "/é\uFFFD", Env: []string{"A=é\uFFFD"}}},
		{name: "no text in argv", spec: protocol.SpawnSpec{Argv: []string{"rm", "a\xffb"}}, want: protocol.CodeInvalidArgument},
		{name: "no text in env", spec: protocol.SpawnSpec{Argv: sh, Env: []string{"A=\xff"}}, want: protocol.CodeInvalidArgument},
		{name: "no text in cwd", spec: protocol.SpawnSpec{Argv: sh, Cwd: "/a\xff"}, want: protocol.CodeInvalidArgument},
		{name: "env without a name", spec: protocol.SpawnSpec{Argv: sh, Env: []string{"=x"}}, want: protocol.CodeInvalidArgument},
		{name: "env without a value", spec: protocol.SpawnSpec{Argv: sh, Env: []string{"A"}}, want: protocol.CodeInvalidArgument},
		{name: "relative cwd", spec: protocol.SpawnSpec{Argv: sh, Cwd: "src"}, want: protocol.CodeInvalidArgument},
		{name: "long cwd", spec: protocol.SpawnSpec{Argv: sh, Cwd: "/" + strings.Repeat("x", protocol.MaxCwdBytes)}, want: protocol.CodeLimitExceeded},
		{name: "long originator", spec: protocol.SpawnSpec{Argv: sh, Originator: strings.Repeat("x", 257)}, want: protocol.CodeLimitExceeded},
		{name: "many arguments", spec: protocol.SpawnSpec{Argv: slicesOf("x", protocol.MaxArgs+1)}, want: protocol.CodeLimitExceeded},
		{name: "many entries", spec: protocol.SpawnSpec{Argv: sh, Env: slicesOf("A=x", protocol.MaxArgs+1)}, want: protocol.CodeLimitExceeded},
		{name: "large", spec: protocol.SpawnSpec{Argv: []string{"sh", strings.Repeat("x", protocol.MaxSpawnBytes)}}, want: protocol.CodeLimitExceeded},
		{name: "many labels", spec: protocol.SpawnSpec{Argv: sh, Labels: labels(protocol.MaxLabels + 1)}, want: protocol.CodeLimitExceeded},
		{name: "large labels", spec: protocol.SpawnSpec{Argv: sh, Labels: map[string]string{"a": strings.Repeat("x", protocol.MaxLabelBytes)}}, want: protocol.CodeLimitExceeded},
		{name: "label without a name", spec: protocol.SpawnSpec{Argv: sh, Labels: map[string]string{"": "x"}}, want: protocol.CodeInvalidArgument},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := protocol.CodeOf(tt.spec.Validate()); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// An error about bytes that are not UTF-8 names the field. It does not show arguments and values, which may be secret.
func TestNotText(t *testing.T) {
	tests := []struct {
		name, want string
		change     protocol.RespawnSpec
	}{
		{name: "argument", change: protocol.RespawnSpec{Argv: []string{"rm", "-v", "secret\xff"}}, want: "argument 2 is not UTF-8 text, and cannot be passed"},
		{name: "directory", change: protocol.RespawnSpec{Cwd: "/a\xff"}, want: `cwd is not UTF-8 text, and cannot be passed: "/a\xff"`},
		{name: "value", change: protocol.RespawnSpec{Env: []string{"A=b", "B=secret\xff"}}, want: `the value of the variable "B" is not UTF-8 text, and cannot be passed`},
		{name: "name", change: protocol.RespawnSpec{Env: []string{"A=b", "B\xff=secret"}}, want: "entry 1 of env is not UTF-8 text, and cannot be passed"},
		{name: "text", change: protocol.RespawnSpec{Argv: []string{"rm", "é"}, Cwd: "/é", Env: []string{"É=é"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := tt.change.Apply(protocol.SpawnSpec{Argv: []string{"sh"}})
			for _, err := range []error{tt.change.Validate(), spec.Validate(), spec.ValidateText()} {
				if tt.want == "" && err == nil {
					continue
				}
				if e := protocol.AsError(err); e.Code != protocol.CodeInvalidArgument || e.Message != tt.want {
					t.Errorf("got %v, want %s", err, tt.want)
				}
			}
			if err := protocol.ValidateViewerEnv(tt.change.Env); (err == nil) != (len(tt.change.Env) == 0 || tt.want == "") {
				t.Errorf("the environment of a viewer: %v", err)
			}
		})
	}
}

func slicesOf(s string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func TestRespawnSpecApply(t *testing.T) {
	old := protocol.SpawnSpec{
		Argv: []string{"a"}, Cwd: "/a", Env: []string{"A=a"}, Cols: 1, Rows: 2, Originator: "o", Labels: map[string]string{"a": "a"},
	}
	if got := (protocol.RespawnSpec{}).Apply(old); !reflect.DeepEqual(got, old) {
		t.Errorf("got %+v, want no change: %+v", got, old)
	}
	change := protocol.RespawnSpec{Argv: []string{"b"}, Cwd: "/b", Env: []string{"B=b"}, Cols: 3, Rows: 4, Labels: map[string]string{}}
	want := protocol.SpawnSpec{Argv: []string{"b"}, Cwd: "/b", Env: []string{"B=b"}, Cols: 3, Rows: 4, Originator: "o", Labels: map[string]string{}}
	// The change is encoded and decoded, because labels that are removed must differ from labels that are not
	// changed.
	b, err := protocol.Encode(link.Reopen{SessionID: "s", RespawnSpec: change})
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := link.Messages.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.(*link.Reopen).Apply(old); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAttachSpecValidate(t *testing.T) {
	tests := []struct {
		name string
		spec protocol.AttachSpec
		want protocol.Code
	}{
		{name: "least", spec: protocol.AttachSpec{SessionID: "s"}},
		{name: "read-only", spec: protocol.AttachSpec{SessionID: "s", Mode: protocol.ModeReadOnly, Writer: "w", Client: "c"}},
		{name: "a view of its own", spec: protocol.AttachSpec{SessionID: "s", View: protocol.ViewOwn, Cols: 10}},
		{name: "unknown view", spec: protocol.AttachSpec{SessionID: "s", View: "blurred"}, want: protocol.CodeInvalidArgument},
		{name: "paced", spec: protocol.AttachSpec{SessionID: "s", Mode: protocol.ModeExclusive, Pace: true}},
		{name: "paced among others", spec: protocol.AttachSpec{SessionID: "s", Pace: true}, want: protocol.CodeInvalidArgument},
		{name: "appearance", spec: protocol.AttachSpec{SessionID: "s", Appearance: &protocol.Appearance{Foreground: "#00fF9a", CellWidth: 8, Version: "v"}}},
		{name: "no colour", spec: protocol.AttachSpec{SessionID: "s", Appearance: &protocol.Appearance{Background: "#00ff9g"}}, want: protocol.CodeInvalidArgument},
		{name: "no cell", spec: protocol.AttachSpec{SessionID: "s", Appearance: &protocol.Appearance{CellHeight: 100_000}}, want: protocol.CodeInvalidArgument},
		{name: "long version", spec: protocol.AttachSpec{SessionID: "s", Appearance: &protocol.Appearance{Version: strings.Repeat("x", 129)}}, want: protocol.CodeLimitExceeded},
		{name: "no session", want: protocol.CodeInvalidArgument},
		{name: "unknown mode", spec: protocol.AttachSpec{SessionID: "s", Mode: "upside_down"}, want: protocol.CodeInvalidArgument},
		{name: "bad writer", spec: protocol.AttachSpec{SessionID: "s", Writer: "a b"}, want: protocol.CodeInvalidArgument},
		{name: "long client", spec: protocol.AttachSpec{SessionID: "s", Client: strings.Repeat("x", 257)}, want: protocol.CodeLimitExceeded},
		{name: "long term", spec: protocol.AttachSpec{SessionID: "s", Term: strings.Repeat("x", 257)}, want: protocol.CodeLimitExceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := protocol.CodeOf(tt.spec.Validate()); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// largestInfo returns the largest SessionInfo, of the characters that are longest in JSON. The lines of a
// screen contain no control characters.
func largestInfo() protocol.SessionInfo {
	bell := func(n int) string { return strings.Repeat("\a", n) }
	line := strings.Repeat(`"`, protocol.MaxTailLine)
	labels := map[string]string{}
	for i := range protocol.MaxLabels {
		labels[fmt.Sprintf("%02d", i)] = bell(protocol.MaxLabelBytes/protocol.MaxLabels - 2)
	}
	code, end := -1, time.Date(2026, 9, 1, 12, 0, 0, 999_999_999, time.FixedZone("", -3600))
	return protocol.SessionInfo{
		ID: protocol.SessionID(strings.Repeat("x", protocol.MaxIDLen)), Instance: protocol.NewInstance(),
		Argv: protocol.CutArgv(slicesOf(bell(100), 5000)), Cwd: bell(protocol.MaxCwdBytes), Labels: labels,
		Originator: bell(4 * protocol.MaxIDLen), CreatedAt: end, LastIOAt: end, ExitCode: &code,
		Exit: &protocol.ExitRecord{
			Reason: protocol.Reason(bell(protocol.MaxReasonLen)), StartedAt: end, ExitedAt: end,
			Tail: slicesOf(line, protocol.TailLines), LastLines: slicesOf(line, protocol.LastLines),
		},
	}
}

// The sessions must fit into messages, however large they are.
func TestSplitSessions(t *testing.T) {
	large := largestInfo()
	if err := (protocol.SpawnSpec{Argv: []string{"x"}, Cwd: "/", Originator: large.Originator, Labels: large.Labels}).Validate(); err != nil {
		t.Fatal(err) // otherwise it would be larger than a valid session
	}
	small := protocol.SessionInfo{ID: "small"}
	tests := []struct {
		name string
		all  []protocol.SessionInfo
	}{
		{name: "none"},
		{name: "one", all: []protocol.SessionInfo{small}},
		{name: "large ones", all: []protocol.SessionInfo{large, small, large, large, small}},
		{name: "many", all: make([]protocol.SessionInfo, 5000)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []protocol.SessionInfo
			parts, last := 0, 0
			for part, more := range protocol.SplitSessions(tt.all) {
				parts++
				if !more {
					last++
				}
				b, err := protocol.Encode(api.Sessions{Sessions: part, More: more})
				if err != nil || len(b)+1 > frame.Max {
					t.Errorf("a part of %d sessions has %d bytes, %v", len(part), len(b), err)
				}
				got = append(got, part...)
			}
			if last != 1 || len(got) != len(tt.all) || len(got) > 0 && !reflect.DeepEqual(got, tt.all) {
				t.Errorf("got %d sessions in %d parts, %d of them without more, want %d", len(got), parts, last, len(tt.all))
			}
		})
	}
}

func TestCutArgv(t *testing.T) {
	short := []string{"sh", "-c", "true"}
	if got := protocol.CutArgv(short); !reflect.DeepEqual(got, short) {
		t.Errorf("got %q, want %q", got, short)
	}
	long := []string{"sh", strings.Repeat("x", protocol.MaxArgvInfo), "y"}
	if got, want := protocol.CutArgv(long), []string{"sh", "…"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %d arguments, want %q", len(got), want)
	}
	if len(long) != 3 || long[2] != "y" {
		t.Error("CutArgv has changed its argument")
	}
}
