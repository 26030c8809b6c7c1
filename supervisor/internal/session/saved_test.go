package session

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/pty"
)

// whole has a value in each field that a state can have.
func whole() *savedState {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	return &savedState{
		Version: 1, ID: "s1", Instance: "life",
		Spec:  json.RawMessage(`{"argv":["sh"],"cwd":"/home","scrollback":7,"token":"again","account":"somebody","created":"2026-01-02T03:04:05Z"}`),
		PTY:   pty.State{PID: 8, Start: 9, Foreign: true, Device: 10, Inode: 11, Terminal: 12, Ended: &pty.Status{Code: 143, Signal: "SIGTERM"}},
		State: protocol.StateExited, LastIO: at, LastUse: 44,
		AttachCount: 13, sizing: sizing{SizePolicy: protocol.SizeLatest, Decider: "w1"},
		Lost:       []savedViewer{{"w1", 14, protocol.Size{Cols: 15, Rows: 16}, at, true, true}},
		Appearance: protocol.Appearance{Foreground: "#010203"},
		focus:      focus{Sent: 'I', RequestCount: 17},
		Turns:      []responderTurn{{0, "", true}, {18, "w1", false}}, heldReplies: heldReplies{HeldReplies: []byte("held")}, PendingLine: 19,
		unanswered:   unanswered{Unanswered: []unansweredReply{{"w1", []byte("reply"), 41}}},
		doubtedInput: doubtedInput{DoubtedWriters: []string{"w2"}},
		displayState: displayState{Title: "title", Cwd: "/cwd", Degraded: true},
		commands: commands{
			Command: &protocol.CommandInfo{Prompt: true, Line: "make", StartedAt: at, FinishedAt: at, ExitCode: new(2), Count: 22},
			Log: commandLog{{
				Line: "make", StartedAt: at, FinishedAt: at, ExitCode: new(2), Count: 32, Cwd: "/src",
				Output: &protocol.CommandOutput{Start: 33, End: 34, From: protocol.LinePlace{Line: 35, Byte: 36}, To: protocol.LinePlace{Line: 37, Byte: 38}, Erased: true},
			}},
		},
		ScannedTo: 23, quiet: quiet{Busy: true}, ClearOffset: 31, ClearEnd: 33, Clears: 32,
		Away: &away{
			Open: true, Lost: true, IsLeftLineMissing: true,
			Now: absence{
				Left: &protocol.Left{At: at, Offset: 24, Line: 25}, Back: at, Printed: 26, Bells: 27,
				Notifications: []protocol.Notification{{Title: "build", Body: "failed"}},
				Commands:      []protocol.CommandInfo{{Line: "make", Count: 28}}, Ended: 29,
			},
			Last: absence{Bells: 30},
		},
		ViewerEnv: []string{"SSH_AUTH_SOCK=/agent"},

		ChildInfo: postmortem.Seen{Cwd: "/seen", Memory: "file", Kills: 20},
		Signaler:  &savedSignal{protocol.Asker{By: "a client"}, "SIGUSR1"},
		Ending: &savedEnding{
			Asker: protocol.Asker{By: "another", ByUser: "user"}, Reason: "reason", TimedOut: true,
			Soft: 1, GraceMS: 250, Hard: true, Over: true, Left: []int{21},
		},
		Exit: &protocol.ExitRecord{ExitCode: 143, Signal: "SIGTERM", Outcome: protocol.OutcomeSoft, Reason: "reason", StartedAt: at, ExitedAt: at},
	}
}

// A state that a released version has written can be read as long as its version number is supported. The golden file
// may get new names; no other line may change.
func TestGoldenState(t *testing.T) {
	const path = "testdata/v1/state.json"
	v := whole()
	testkit.GoldenJSON(t, path, v)
	data, err := os.ReadFile(path)
	testkit.Must(t, err)
	got := new(savedState)
	if err := json.Unmarshal(data, got); err != nil || got.validate() != nil {
		t.Fatalf("the golden state cannot be read: %v, %v", err, got.validate())
	}
	var compact, want any // the spec is stored as raw JSON, so only its value must be the same
	if json.Unmarshal(got.Spec, &compact) != nil || json.Unmarshal(v.Spec, &want) != nil || !reflect.DeepEqual(compact, want) {
		t.Errorf("the spec is %s", got.Spec)
	}
	got.Spec = v.Spec
	if !reflect.DeepEqual(got, v) {
		t.Errorf("read as %+v, want %+v", got, v)
	}
}

func TestStateRefused(t *testing.T) {
	for name, change := range map[string]func(*savedState){
		"of a later version":    func(v *savedState) { v.Version = savedVersion + 1 },
		"of no version":         func(v *savedState) { v.Version = 0 },
		"without an id":         func(v *savedState) { v.ID = "" },
		"with a strange id":     func(v *savedState) { v.ID = "../x" },
		"without an instance":   func(v *savedState) { v.Instance = "" },
		"without turns":         func(v *savedState) { v.Turns = nil },
		"ended without a trace": func(v *savedState) { v.Exit = nil },
		"alive with a record":   func(v *savedState) { v.State = protocol.StateRunning },
	} {
		v := whole()
		change(v)
		if v.validate() == nil {
			t.Errorf("the state %s was accepted", name)
		}
	}
}

// The exit word stores how a child ended.
func TestExitWord(t *testing.T) {
	if _, ok := exitStatus(0); ok {
		t.Error("the word 0 counts as an exit")
	}
	for _, want := range []pty.Status{{}, {Code: 7}, {Code: 255}, {Code: -1}, {Code: 137, Signal: "SIGKILL"}, {Code: 128 + 11, Signal: "SIGSEGV"}} {
		if got, ok := exitStatus(exitWord(want)); !ok || got.Code != want.Code || got.Signal != want.Signal {
			t.Errorf("%+v is read as %+v", want, got)
		}
	}
}

// A spec is saved without escapes that make it longer: a long command line with shell operators must fit into the store.
func TestSpecIsShort(t *testing.T) {
	argv := []string{"sh", "-c", "a <b >c && d"}
	saved, err := (&identity{spec: protocol.SpawnSpec{Argv: argv}}).save(nil, protocol.Limits{})
	if err != nil || !strings.Contains(string(saved), argv[2]) {
		t.Errorf("saved as %s, %v", saved, err)
	}
	if i, _, err := loadIdentity(&savedState{Spec: saved}); err != nil || !slices.Equal(i.spec.Argv, argv) {
		t.Errorf("loaded as %q, %v", i.spec.Argv, err)
	}
}
