package session

import (
	"os"
	"slices"
	"testing"

	"holdfast/protocol"
)

func TestChildEnv(t *testing.T) {
	home := workDir(protocol.SpawnSpec{})
	forced := func(pwd string) []string {
		return []string{"HOLDFAST_SESSION=it", "HOLDFAST_INSTANCE=this", "PWD=" + pwd}
	}
	term := []string{"TERM=xterm-256color", "COLORTERM=truecolor"}
	base := []string{"PATH=" + defaultPath, "LANG=C.UTF-8"}
	for _, tt := range []struct {
		name      string
		inherited []string
		spec      protocol.SpawnSpec
		want      []string
	}{
		{"nothing", nil, protocol.SpawnSpec{}, slices.Concat(base, term, forced(home))},
		{"inherited", []string{"PATH=/bin", "A=1"}, protocol.SpawnSpec{Cwd: "/"},
			slices.Concat([]string{"PATH=/bin", "LANG=C.UTF-8", "A=1"}, term, forced("/"))},
		{"the launcher's terminal is not the child's", []string{"TERM=dumb", "COLORTERM=no", "HOLDFAST_SESSION=outer", "HOLDFAST_INSTANCE=outer"}, protocol.SpawnSpec{Cwd: "/"},
			slices.Concat(base, term, forced("/"))},
		// demand: R1
		{"asked for", []string{"A=1", "B=1"}, protocol.SpawnSpec{Cwd: "/", Env: []string{"B=2", "TERM=dumb", "LANG=de", "C=", "C=="}},
			[]string{"PATH=" + defaultPath, "LANG=de", "A=1", "B=2", "TERM=dumb", "COLORTERM=truecolor", "C==", "HOLDFAST_SESSION=it", "HOLDFAST_INSTANCE=this", "PWD=/"}},
		{"PWD and the session id cannot be chosen", nil, protocol.SpawnSpec{Cwd: "/", Env: []string{"PWD=/x", "HOLDFAST_SESSION=x", "HOLDFAST_INSTANCE=x"}},
			[]string{base[0], base[1], term[0], term[1], "PWD=/", "HOLDFAST_SESSION=it", "HOLDFAST_INSTANCE=this"}},
		{"nothing inherited", []string{"A=1", "PATH=/bin"}, protocol.SpawnSpec{Cwd: "/", ClearInheritedEnv: true, Env: []string{"B=2"}},
			slices.Concat(base, term, []string{"B=2"}, forced("/"))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := childEnv(tt.inherited, &identity{id: "it", instance: "this", dir: workDir(tt.spec), spec: tt.spec})
			if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(tt.want))) {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestWorkDir(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, home, cwd, want string }{
		{"asked for", dir, "/", "/"},
		{"home", dir, "", dir},
		{"no such home", dir + "/none", "", "/"},
		{"home is a file", file, "", "/"},
		{"no home", "", "", "/"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("HOME", tt.home)
			if got := workDir(protocol.SpawnSpec{Cwd: tt.cwd}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
