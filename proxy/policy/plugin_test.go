package policy

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// stub is a policy that keeps the questions it receives, and returns the answers of a test.
type stub struct {
	asked     any
	principal Principal
	task      Task
	err       error
	panics    any
	hangs     chan struct{} // closed when the caller has canceled
}

func (s *stub) answer(ctx context.Context, asked any) error {
	s.asked = asked
	if s.panics != nil {
		panic(s.panics)
	}
	if s.hangs != nil {
		<-ctx.Done()
		close(s.hangs)
		return ctx.Err()
	}
	return s.err
}

func (s *stub) Authenticate(ctx context.Context, c Credentials) (Principal, error) {
	return s.principal, s.answer(ctx, c)
}

func (s *stub) ResolveTask(ctx context.Context, r TaskRequest) (Task, error) {
	return s.task, s.answer(ctx, r)
}
func (s *stub) Authorize(ctx context.Context, a Access) error { return s.answer(ctx, a) }
func (s *stub) Observe(ctx context.Context, e Event) error    { return s.answer(ctx, e) }

// over returns the client of a policy that go-plugin would return.
func over(t *testing.T, register func(*grpc.Server)) Policy {
	t.Helper()
	l, s := bufconn.Listen(1<<16), newServer(nil)
	register(s)
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); s.Stop(); <-done })
	raw, err := Plugins(nil)[Version][PluginName].(plugin.GRPCPlugin).GRPCClient(t.Context(), nil, conn)
	if err != nil {
		t.Fatal(err)
	}
	return raw.(Policy)
}

func wired(t *testing.T, p Policy) Policy {
	t.Helper()
	return over(t, func(s *grpc.Server) {
		if err := Plugins(p)[Version][PluginName].(plugin.GRPCPlugin).GRPCServer(nil, s); err != nil {
			t.Fatal(err)
		}
	})
}

// ask asks each question with the struct that f fills.
func ask(ctx context.Context, p Policy, f func(any)) map[string]error {
	var c Credentials
	var r TaskRequest
	var a Access
	var e Event
	for _, q := range []any{&c, &r, &a, &e} {
		f(q)
	}
	_, err1 := p.Authenticate(ctx, c)
	_, err2 := p.ResolveTask(ctx, r)
	return map[string]error{"authenticate": err1, "resolve task": err2, "authorize": p.Authorize(ctx, a), "observe": p.Observe(ctx, e)}
}

// fill sets every field of a struct, so that new fields are tested, too.
func fill(v reflect.Value, name string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.UnixMilli(1_700_000_000_123).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), name+"."+v.Type().Field(i).Name)
		}
	case reflect.String:
		v.SetString(name + " \u00e9")
	case reflect.Int:
		v.SetInt(int64(-len(name)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.ValueOf([]string{name + "1", "", name + "3"}))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{name: "value", "empty": ""}))
	default:
		panic("a field of another kind: " + name)
	}
}

// Questions and answers arrive unchanged, with all fields set and with none.
func TestRoundTrip(t *testing.T) {
	for _, full := range []bool{true, false} {
		s := &stub{}
		p := wired(t, s)
		fillAll := func(into any) {
			if full {
				fill(reflect.ValueOf(into).Elem(), fmt.Sprintf("%T", into))
			}
		}
		fillAll(&s.principal)
		fillAll(&s.task)
		var c Credentials
		var r TaskRequest
		var a Access
		e := Event{At: time.UnixMilli(0).UTC()}
		for _, q := range []any{&c, &r, &a, &e} {
			fillAll(q)
		}
		check := func(name string, err error, got, want any, saw, asked any) {
			t.Helper()
			if err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(saw, asked) {
				t.Errorf("%s: got %+v %v, want %+v; the question was %+v, want %+v", name, got, err, want, saw, asked)
			}
		}
		principal, err := p.Authenticate(t.Context(), c)
		check("authenticate", err, principal, s.principal, s.asked, c)
		task, err := p.ResolveTask(t.Context(), r)
		check("resolve task", err, task, s.task, s.asked, r)
		check("authorize", p.Authorize(t.Context(), a), nil, nil, s.asked, a)
		check("observe", p.Observe(t.Context(), e), nil, nil, s.asked, e)
	}
}
