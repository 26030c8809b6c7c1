//go:build unix

package session

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

func encodedText(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// The rules are those of the program status protocol, revision 0.2.
func TestProgramReports(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		name    string
		reports []string
		want    string // state, kind, id, app, title, message and progress of the first report, and the number of reports
	}{
		{"one", []string{"state=working:app=cargo:progress=40:title=" + encodedText("build")}, `working "" "" "cargo" "build" "" 40 1`},
		{"blocked", []string{"state=blocked:kind=permission:msg=" + encodedText("Deploy?")}, `blocked "permission" "" "" "" "Deploy?" - 1`},
		{"replaced whole", []string{"state=working:app=a:progress=1", "state=done"}, `done "" "" "" "" "" - 1`},
		{"the most urgent", []string{"state=error", "id=a:state=blocked", "id=b:state=working"}, `blocked "" "a" "" "" "" - 3`},
		{"the name of the part above", []string{"app=x:state=working", "id=a/b:state=blocked"}, `blocked "" "a/b" "x" "" "" - 2`},
		{"cleared with all below", []string{"id=a:state=done", "id=a/b:state=error", "id=ab:state=idle", "id=a:state=clear"}, `idle "" "ab" "" "" "" - 1`},
		{"all cleared", []string{"id=a:state=done", "state=done", "state=clear"}, ""},
		{"kind without blocked, progress without work", []string{"state=done:kind=auth:progress=5"}, `done "" "" "" "" "" - 1`},
		{"unknown keys and malformed pairs", []string{"x:color=red:state=idle:progress=abc"}, `idle "" "" "" "" "" - 1`},
		{"the last duplicate", []string{"state=idle:state=done"}, `done "" "" "" "" "" - 1`},
		{"an unknown state", []string{"state=sleeping", "app=x"}, ""},
		{"a wrong id", []string{"id=a//b:state=done", "id=" + strings.Repeat("a", 33) + ":state=done", "id=1/2/3/4/5/6/7/8/9:state=done"}, ""},
		{"wrong texts", []string{"state=done:msg=!", "state=done:msg=" + encodedText("a\x1bb"), "state=done:msg=" + encodedText(strings.Repeat("a", 2049)), "state=done:title=" + encodedText(strings.Repeat("a", 193))}, ""},
		{"directions", []string{"state=done:msg=" + encodedText("a\u202eb")}, `done "" "" "" "" "ab" - 1`},
		{"a long text", []string{"state=done:msg=" + encodedText(strings.Repeat("ä", 1000))}, fmt.Sprintf(`done "" "" "" "" %q - 1`, strings.Repeat("ä", 256))},
	} {
		var p programs
		for i, r := range tt.reports {
			p.report(r, now.Add(time.Duration(i)))
		}
		got := ""
		if r := p.first(nil); r != nil {
			progress := "-"
			if r.Progress != nil {
				progress = fmt.Sprint(*r.Progress)
			}
			got = fmt.Sprintf("%s %q %q %q %q %q %s %d", r.State, r.Kind, r.ID, r.App, r.Title, r.Message, progress, len(p.Reports))
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	var p programs
	for i := range 1000 {
		p.report(fmt.Sprintf("id=%d:state=idle", i), now)
	}
	if len(p.Reports) != maxStatuses || p.Reports[0].ID != fmt.Sprint(1000-maxStatuses) {
		t.Errorf("%d reports from %s on", len(p.Reports), p.Reports[0].ID)
	}
}

// The info of a session has the report that needs a person most. A prompt, a reset of the terminal and the end of
// the session end reports. The session itself answers whether it understands them.
func TestProgramStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Answers: true})
		status := func() string {
			t.Helper()
			info, err := s.Info()
			testkit.Must(t, err)
			if info.Program == nil {
				return ""
			}
			return fmt.Sprintf("%s %s %s", info.Program.State, info.Program.App, info.Program.Message)
		}
		before := tb.Events().Seq()
		show(by(s), "\x1b]7501;?\x1b\\")
		if got := typedBy(by(s)); got != "\x1b]7501;?\x1b\\" {
			t.Errorf("the session answers %q", got)
		}
		if got := v.saw(t); strings.Contains(got, "7501;?\x1b") {
			t.Errorf("the viewer's terminal is asked as well: %q", got)
		}
		report := func(text string) { show(by(s), "\x1b]7501;"+text+"\x07") }
		report("state=working:app=agent")
		report("state=blocked:kind=question:app=agent:msg=" + encodedText("Which one?"))
		if got := status(); got != "blocked agent Which one?" {
			t.Errorf("status %q", got)
		}
		show(by(s), "\x1b]133;A\x07$ ")
		if got := status(); got != "" {
			t.Errorf("after a prompt: %q", got)
		}
		report("state=error:app=agent")
		show(by(s), "\x1b]133;A\x07$ ")
		if got := status(); got != "error agent " {
			t.Errorf("after another prompt: %q", got)
		}
		show(by(s), "\x1bc")
		if got := status(); got != "" {
			t.Errorf("after a reset: %q", got)
		}
		for i := range 100 {
			report(fmt.Sprintf("state=working:progress=%d", i))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		count := 0
		all, _, err := tb.Events().Next(t.Context(), before)
		testkit.Must(t, err)
		var last *protocol.SessionInfo
		for _, e := range all {
			if e.Kind == protocol.EventProgramStatus {
				count++
				last = e.Session
			}
		}
		if count < 3 || count > 3*reportBurst || last.Program == nil || *last.Program.Progress != 99 {
			t.Errorf("%d events, the last one %+v", count, last)
		}
	})
}
