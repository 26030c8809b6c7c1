package session

import (
	"os"
	"strings"

	"holdfast/protocol"
)

// defaultPath is for a child that inherits nothing, as login(1) sets it.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// childEnv is a child's whole environment. What the session asks for wins over
// what is inherited; what says where the child is wins over both.
func childEnv(inherited []string, id protocol.SessionID, spec protocol.SpawnSpec) []string {
	base := []string{"PATH=" + defaultPath, "LANG=C.UTF-8"}
	if !spec.ClearInheritedEnv {
		base = append(base, inherited...)
	}
	base = append(base, "TERM=xterm-256color", "COLORTERM=truecolor")
	base = append(base, spec.Env...)
	base = append(base, "HOLDFAST_SESSION="+string(id), "PWD="+workDir(spec))
	return lastWins(base)
}

// lastWins keeps the last entry of each name, at the place of the first.
func lastWins(env []string) []string {
	at := make(map[string]int, len(env))
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if i, ok := at[name]; ok {
			out[i] = e
			continue
		}
		at[name] = len(out)
		out = append(out, e)
	}
	return out
}

// workDir is where a child starts: where asked, else home, else the root.
func workDir(spec protocol.SpawnSpec) string {
	if spec.Cwd != "" {
		return spec.Cwd
	}
	if home, err := os.UserHomeDir(); err == nil {
		if info, err := os.Stat(home); err == nil && info.IsDir() {
			return home
		}
	}
	return "/"
}
