package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"holdfast/proxy/policy/policypb"
)

// A refusal with a permitted code is passed on. Any other one is an error of the policy.
func TestRefusals(t *testing.T) {
	may := map[string][]string{
		"authenticate": {CodeUnauthorized}, "resolve task": {CodeTaskNotFound, CodeWorkspaceMismatch}, "authorize": {CodePermissionDenied},
	}
	s := &stub{}
	p := wired(t, s)
	for _, code := range []string{CodeUnauthorized, CodePermissionDenied, CodeTaskNotFound, CodeWorkspaceMismatch, "", "internal"} {
		s.err = fmt.Errorf("wrapped: %w", Refuse(code, "go away"))
		for name, err := range ask(t.Context(), p, func(any) {}) {
			var no *Refusal
			want := strings.Contains(strings.Join(may[name], " ")+" ", code+" ") && code != ""
			if errors.As(err, &no) != want || err == nil || want && *no != (Refusal{code, "go away"}) {
				t.Errorf("%s refused with %q: got %v, want a refusal: %v", name, code, err, want)
			}
		}
	}
}

// An error or a panic fails one question, and the next one is answered.
func TestBroken(t *testing.T) {
	for _, tt := range []struct {
		name string
		stub *stub
		says string
	}{
		{"an error", &stub{err: errors.New("no database")}, "no database"},
		{"a panic", &stub{panics: "out of range"}, "panicked: out of range"},
		{"no refusal in an error", &stub{err: (*Refusal)(nil)}, "panicked"},
		{"an answer too long", &stub{principal: Principal{User: strings.Repeat("u", MaxMessageBytes)}, task: Task{WorkDir: strings.Repeat("/", MaxMessageBytes)}}, "larger than max"},
		{"an answer that is not UTF-8", &stub{principal: Principal{User: "\xff"}, task: Task{WorkDir: "\xff"}}, "UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := wired(t, tt.stub)
			for range 2 {
				for name, err := range ask(t.Context(), p, func(any) {}) {
					if err == nil && tt.stub.principal.User != "" && (name == "authorize" || name == "observe") {
						continue // their answers have no text
					}
					if no := (*Refusal)(nil); err == nil || errors.As(err, &no) || !strings.Contains(err.Error(), tt.says) || !strings.HasPrefix(err.Error(), name+": ") {
						t.Errorf("%s: got %v, want an error that says %q", name, err, tt.says)
					}
				}
			}
		})
	}
}

// A policy in another language may return an empty answer.
func TestNoAnswer(t *testing.T) {
	p := over(t, func(s *grpc.Server) { policypb.RegisterPolicyServer(s, mute{}) })
	if _, err := p.Authenticate(t.Context(), Credentials{}); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("got %v, want an error that the answer is empty", err)
	}
	if task, err := p.ResolveTask(t.Context(), TaskRequest{}); err != nil || task.WorkDir != "" {
		t.Errorf("got %+v %v, want a task without a work dir", task, err)
	}
	if err := p.Observe(t.Context(), Event{}); err == nil || !strings.Contains(err.Error(), "not implemented") {
		t.Errorf("got %v, want an error that Observe is not implemented", err)
	}
}

type mute struct {
	policypb.UnimplementedPolicyServer
}

func (mute) Authenticate(context.Context, *policypb.AuthenticateRequest) (*policypb.AuthenticateResponse, error) {
	return &policypb.AuthenticateResponse{}, nil
}

func (mute) ResolveTask(context.Context, *policypb.ResolveTaskRequest) (*policypb.ResolveTaskResponse, error) {
	return &policypb.ResolveTaskResponse{}, nil
}

// Invalid text of a client is refused without a question, and is cleaned in an event.
func TestUnsendable(t *testing.T) {
	for _, tt := range []struct{ name, text, told string }{
		{"not UTF-8", "a\xff\xfeb", "a\uFFFDb"},
		{"too long", strings.Repeat("x", MaxMessageBytes), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &stub{}
			p := wired(t, s)
			_, err := p.Authenticate(t.Context(), Credentials{Token: tt.text})
			if want := Refuse(CodeUnauthorized, ""); !errors.Is(err, want) || s.asked != nil {
				t.Errorf("got %v and the question %.40v, want %v", err, s.asked, want)
			}
			_, err = p.ResolveTask(t.Context(), TaskRequest{WorkspaceID: tt.text})
			if want := Refuse(CodeTaskNotFound, ""); !errors.Is(err, want) || s.asked != nil {
				t.Errorf("got %v and the question %.40v, want %v", err, s.asked, want)
			}
			err = p.Authorize(t.Context(), Access{Labels: map[string]string{tt.text: ""}})
			if want := Refuse(CodePermissionDenied, ""); !errors.Is(err, want) || s.asked != nil {
				t.Errorf("got %v and the question %.40v, want %v", err, s.asked, want)
			}
			e := Event{At: time.UnixMilli(1).UTC(), Kind: EventSpawned, SessionID: "s", Labels: map[string]string{"a": tt.text}}
			if err := p.Observe(t.Context(), e); err != nil {
				t.Error(err)
			}
			if got, ok := s.asked.(Event); !ok || got.Labels["a"] != tt.told || got.SessionID != "s" {
				t.Errorf("the event is %.80v, want %.40q", s.asked, tt.told)
			}
		})
	}
}

// A canceled caller receives its context's error, and the policy notices the cancellation. With a fake clock, the
// context ends only after the policy has received the question.
func TestGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{hangs: make(chan struct{})}
		p := wired(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := p.Authorize(ctx, Access{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		select {
		case <-s.hangs:
		case <-time.After(time.Minute):
			t.Error("the policy has not noticed the cancellation")
		}
		<-ctx.Done() // waits, because gRPC's timer may end before the context's, and a cancel would then be its error
		cancel()
		s.hangs = nil
		if err := p.Authorize(ctx, Access{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestNoPolicy(t *testing.T) {
	if err := Plugins(nil)[Version][PluginName].(plugin.GRPCPlugin).GRPCServer(nil, grpc.NewServer()); err == nil {
		t.Error("nil was served as a policy")
	}
}
