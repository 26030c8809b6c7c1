//go:build unix

package policyhost

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/policy"
	"holdfast/shared/testkit"
)

func TestAnswers(t *testing.T) {
	s := newStage(t, "served")
	h, _ := s.start(s.config())
	ctx := testkit.Soon(t)
	p, err := h.Authenticate(ctx, policy.Credentials{Token: "x", Transport: policy.TransportUnix, UID: 7, Client: "c"})
	if want := (policy.Principal{User: "u", Workspace: "c", Roles: []string{"unix"}}); err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("authenticate: got %+v, %v, want %+v", p, err, want)
	}
	task, err := h.ResolveTask(ctx, policy.TaskRequest{Principal: p, TaskID: "t"})
	if want := (policy.Task{WorkDir: "/w/t", Argv: []string{"sh"}, Labels: map[string]string{"user": "u"}}); err != nil || !reflect.DeepEqual(task, want) {
		t.Errorf("resolve task: got %+v, %v, want %+v", task, err, want)
	}
	if err := h.Authorize(ctx, policy.Access{Principal: p, Verb: policy.VerbRead}); err != nil {
		t.Errorf("authorize: %v", err)
	}
	_, noTask := h.ResolveTask(ctx, policy.TaskRequest{TaskID: "none"})
	for what, tt := range map[string]struct {
		err  error
		want policy.Refusal
	}{
		"authenticate": {auth(t, h, "refuse"), policy.Refusal{Code: policy.CodeUnauthorized, Message: "no such token"}},
		"resolve task": {noTask, policy.Refusal{Code: policy.CodeTaskNotFound, Message: "no such task"}},
		"authorize":    {h.Authorize(ctx, policy.Access{Verb: policy.VerbType}), policy.Refusal{Code: policy.CodePermissionDenied, Message: "read only"}},
	} {
		if no, ok := tt.err.(*policy.Refusal); !ok || *no != tt.want {
			t.Errorf("%s: got %v, want %v", what, tt.err, tt.want)
		}
	}
	want := map[string]MethodStats{"authenticate": {Calls: 2}, "resolve_task": {Calls: 2}, "authorize": {Calls: 2}, "observe": {}}
	if got := h.Stats(); !got.Running || got.Starts != 1 || got.Crashes != 0 || !reflect.DeepEqual(got.Methods, want) {
		t.Errorf("stats: got %+v, want %+v", got, want)
	}
}

// A failed answer is a refusal, and is logged once until the policy answers again.
func TestNoAnswer(t *testing.T) {
	s := newStage(t, "raw")
	h, _ := s.start(s.config())
	ctx := testkit.Soon(t)
	const noAnswer, again = "policy does not answer; its decisions are refusals", "policy answers again"
	for _, token := range []string{"error", "empty", "foreign refusal", "long", "large", "long error"} {
		for range 100 {
			wantUnavailable(t, token, auth(t, h, token))
		}
	}
	lines := s.log.with(noAnswer)
	if len(lines) != 1 || lines[0]["kind"] != "authenticate" || lines[0]["err"] != "authenticate: rpc error: code = Internal desc = out of order" {
		t.Errorf("got %v, want one line", lines)
	}
	for _, task := range []string{"relative", "foreign refusal"} {
		_, err := h.ResolveTask(ctx, policy.TaskRequest{TaskID: task})
		wantUnavailable(t, task, err)
	}
	wantUnavailable(t, "authorize", h.Authorize(ctx, policy.Access{SessionID: "foreign refusal"}))
	if lines := s.log.with(noAnswer); len(lines) != 3 {
		t.Errorf("got %v, want one line for each of three questions", lines)
	}
	testkit.Must(t, auth(t, h, ""))
	if lines := s.log.with(again); len(lines) != 1 || lines[0]["count"] != 600.0 {
		t.Errorf("got %v, want one line with a count of 600", lines)
	}
	for range 50 { // the failure comes and goes
		wantUnavailable(t, "error", auth(t, h, "error"))
		testkit.Must(t, auth(t, h, ""))
	}
	if n := len(s.log.with(noAnswer)) + len(s.log.with(again)); n > 20 {
		t.Errorf("got %d lines of a policy that fails every other time", n)
	}
	if got := h.Stats(); got.Methods["authenticate"].Failures != 650 || got.Starts != 1 || !got.Running {
		t.Errorf("stats: %+v", got)
	}
}

// A program that ignores the deadline is waited for until then, and killed after three late answers in a row.
func TestHang(t *testing.T) {
	s := newStage(t, "served")
	cfg := s.config()
	cfg.Deadline = 200 * time.Millisecond
	h, first := s.start(cfg)
	late := func() { wantUnavailable(t, "late", auth(t, h, "wait")) }
	good := func() { // on a busy machine this answer may be late, too
		testkit.Eventually(t, limit, func() bool { return h.Authorize(testkit.Soon(t), policy.Access{}) == nil }, "an answer in time")
	}
	for range 3 {
		late()
		late()
		good()
	}
	if h.Stats().Crashes == 0 { // true unless the machine is very slow
		late()
		late()
		late()
	}
	testkit.Within(t, limit, "the end of the program that hangs", first.gone)
	s.next()
	running(t, h)
	good()
	if lines := s.log.with("policy hung and was killed"); len(lines) == 0 || lines[0]["pid"] != float64(first.PID) {
		t.Errorf("got %v, want a line of process %d", lines, first.PID)
	}
	if got := h.Stats(); got.Methods["authenticate"].Timeouts < 3 || got.Crashes == 0 {
		t.Errorf("stats: %+v", got)
	}
}

// Late answers to questions that were asked together count once, because a program that has too much to do does not
// hang. A question that waited for its turn for most of its time does not count.
func TestTooMuchIsNoHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = 200 * time.Millisecond
		r := &run{hung: make(chan struct{})}
		late := func(times int, after time.Duration) {
			asked := time.Now()
			time.Sleep(after)
			for range times {
				r.tooLate(asked, deadline)
			}
		}
		late(3*maxCalls, deadline)
		late(3*maxCalls, deadline/2-1)
		for range maxLate - 1 {
			if r.isHung() {
				t.Error("the program was taken for one that hangs")
			}
			late(1, deadline)
		}
		if !r.isHung() {
			t.Errorf("after %d late answers one after another the program does not count as hung", maxLate)
		}
	})
}

// A canceled caller receives the context's error, which does not count as a failure of the policy.
func TestCallerGivesUp(t *testing.T) {
	s := newStage(t, "served")
	h, p := s.start(s.config())
	for range maxLate + 1 {
		ctx, cancel := context.WithCancel(testkit.Soon(t))
		failed := make(chan error, 1)
		go func() {
			_, err := h.Authenticate(ctx, policy.Credentials{Token: "wait"})
			failed <- err
		}()
		testkit.Within(t, limit, "the question", p.asked)
		cancel()
		if err := testkit.Within(t, limit, "the answer", failed); err != context.Canceled {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	}
	past, cancel := context.WithTimeout(testkit.Soon(t), time.Millisecond)
	defer cancel()
	if _, err := h.Authenticate(past, policy.Credentials{Token: "wait"}); err != context.DeadlineExceeded {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	if got := h.Stats(); got.Methods["authenticate"].Failures != 0 || got.Crashes != 0 || !got.Running {
		t.Errorf("stats: %+v", got)
	}
	p.open(t)
}

// The number of concurrent questions is limited. Another one waits.
func TestBound(t *testing.T) {
	s := newStage(t, "served")
	h, p := s.start(s.config())
	var all sync.WaitGroup
	for range maxCalls {
		all.Go(func() {
			if err := auth(t, h, "wait"); err != nil {
				t.Error(err)
			}
		})
	}
	for range maxCalls {
		testkit.Within(t, limit, "all questions", p.asked)
	}
	ctx, cancel := context.WithTimeout(testkit.Soon(t), 50*time.Millisecond)
	defer cancel()
	if err := h.Authorize(ctx, policy.Access{}); err != context.DeadlineExceeded {
		t.Errorf("a question above the limit: got %v, want it to wait until the caller gives up", err)
	}
	p.open(t)
	all.Wait()
	if err := h.Authorize(testkit.Soon(t), policy.Access{}); err != nil {
		t.Error(err)
	}
	if got := h.Stats(); got.Crashes != 0 || got.Methods["authorize"].Timeouts != 0 {
		t.Errorf("stats: %+v", got)
	}
}

func TestTooMany(t *testing.T) {
	h := &Host{cfg: Config{Deadline: time.Millisecond}, slots: make(chan struct{})} // without a free slot
	e := wantUnavailable(t, "a question above the limit", h.Authorize(testkit.Soon(t), policy.Access{}))
	if want := "the policy has too many unanswered questions, so the request is refused: try again"; e.Message != want {
		t.Errorf("got %q, want %q", e.Message, want)
	}
}

// Every task that a policy may return can be started.
func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		name      string
		got, want int
	}{
		{"arguments", policy.MaxArgs, protocol.MaxArgs},
		{"bytes of arguments and environment", policy.MaxTaskBytes, protocol.MaxSpawnBytes},
		{"bytes of a directory", policy.MaxDirBytes, protocol.MaxCwdBytes},
		{"labels", policy.MaxLabels, protocol.MaxLabels},
		{"bytes of labels", policy.MaxLabelBytes, protocol.MaxLabelBytes},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: the limit of a policy is %d, that of a spawn %d", tt.name, tt.got, tt.want)
		}
	}
	for code, want := range map[string]protocol.Code{
		policy.CodeUnauthorized: protocol.CodeUnauthorized, policy.CodePermissionDenied: protocol.CodePermissionDenied,
		policy.CodeTaskNotFound: protocol.CodeTaskNotFound, policy.CodeWorkspaceMismatch: protocol.CodeWorkspaceMismatch,
	} {
		if code != string(want) {
			t.Errorf("got code %s, want %s", code, want)
		}
	}
}

func TestAfterClose(t *testing.T) {
	s := newStage(t, "served")
	cfg := s.config()
	cfg.Grace = time.Millisecond
	h, p := s.start(cfg)
	waits := make(chan error, 1)
	go func() { waits <- auth(t, h, "wait") }()
	testkit.Within(t, limit, "the question", p.asked)
	if err := errors.Join(h.Close(), h.Close()); err != nil {
		t.Error(err)
	}
	wantUnavailable(t, "asked before", testkit.Within(t, limit, "an answer", waits))
	wantUnavailable(t, "asked after", auth(t, h, ""))
	if err := h.Observe(testkit.Soon(t), policy.Event{}); err != nil {
		t.Error(err)
	}
	if got := h.Stats(); got.Running || got.EventsDropped != 1 || got.Crashes != 0 {
		t.Errorf("stats: %+v", got)
	}
}
