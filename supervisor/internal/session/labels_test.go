//go:build linux

package session

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// Changed labels are published, and stay after the supervisor is replaced and after the session is reopened.
func TestRelabel(t *testing.T) {
	l := newLife(t, Config{})
	spec := bash("read x; exit 3")
	spec.Labels = map[string]string{"title": "A", "empty": ""}
	s := create(t, l.Table, spec)
	seq := l.Events().Seq()
	relabel := func(change, want map[string]string) {
		t.Helper()
		before := s.Labels()
		kept := fmt.Sprint(before)
		testkit.Must(t, s.Relabel(change))
		if got := info(t, s).Labels; !reflect.DeepEqual(got, want) {
			t.Errorf("after %v the labels are %v, want %v", change, got, want)
		}
		if fmt.Sprint(before) != kept {
			t.Errorf("the labels that info returned before are %v now", before)
		}
	}
	relabel(map[string]string{"title": "B", "more": "1"}, map[string]string{"title": "B", "more": "1", "empty": ""})
	relabel(map[string]string{"title": "B", "none": ""}, map[string]string{"title": "B", "more": "1", "empty": ""})
	relabel(map[string]string{"more": ""}, map[string]string{"title": "B", "empty": ""})
	events := since(t, l.Table, seq, protocol.EventLabels)
	if len(events) != 2 || events[0].Session.Labels["more"] != "1" || len(events[1].Session.Labels) != 2 {
		t.Errorf("the events are %+v", events)
	}
	wantCode(t, "no key", s.Relabel(map[string]string{"": "x"}), protocol.CodeInvalidArgument)
	wantCode(t, "too much", s.Relabel(map[string]string{"x": strings.Repeat("x", protocol.MaxLabelBytes)}), protocol.CodeLimitExceeded)

	l = l.restart(Heritage{})
	s = l.get(s.ID())
	if got := info(t, s).Labels; got["title"] != "B" || len(got) != 2 {
		t.Errorf("in the next life the labels are %v", got)
	}
	if _, err := s.Type("w", 0, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	ended(t, s)
	relabel(map[string]string{"title": "C"}, map[string]string{"title": "C", "empty": ""})
	again, err := l.reopen(s.ID(), "", protocol.RespawnSpec{}, "")
	testkit.Must(t, err)
	if got := info(t, again).Labels; got["title"] != "C" || len(got) != 2 {
		t.Errorf("after the reopen the labels are %v", got)
	}
}

// The labels of a session that was created without any can be changed.
func TestRelabelFromNone(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash("exec cat"))
	if err := s.Relabel(map[string]string{"none": ""}); err != nil || len(s.Labels()) != 0 {
		t.Errorf("%v, %v", s.Labels(), err)
	}
	if err := s.Relabel(map[string]string{"title": "A"}); err != nil || s.Labels()["title"] != "A" {
		t.Errorf("%v, %v", s.Labels(), err)
	}
}
