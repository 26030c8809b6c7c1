package cli

import (
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/internal/front"
)

func TestListItems(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	now := time.Now()
	got := listItems([]protocol.SessionInfo{
		{ID: "build", Argv: []string{"make", "-j8"}, Cwd: "/home/me/src", LastIOAt: now.Add(-90 * time.Second)},
		{ID: "b", Argv: []string{"sh"}, LastIOAt: now, Labels: map[string]string{protocol.LabelTitle: "title"}, Cwd: "/home/mean", CurrentCwd: "/home/me"},
		{ID: "c", Argv: []string{"sh"}, LastIOAt: now, Cwd: "/home/mean"},
	})
	want := []front.Item{
		{Name: "build", Age: "1m", Runs: "make -j8", Dir: "~/src"},
		{Name: "b", Age: "0s", Runs: "title: sh", Dir: "~"},
		{Name: "c", Age: "0s", Runs: "sh", Dir: "/home/mean"},
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("item %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}
