package session

import (
	"os"
	"slices"
	"strings"

	"holdfast/protocol"
)

// defaultPath is the PATH of a child that inherits no environment. login(1) sets the same.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// childEnv returns the complete environment of a child. Entries of the spec replace inherited
// entries; entries that tell the child's session and directory replace both.
func childEnv(inherited []string, i *identity) []string {
	spec := i.spec
	base := []string{"PATH=" + defaultPath, "LANG=C.UTF-8"}
	if !spec.ClearInheritedEnv {
		base = append(base, inherited...)
	}
	base = append(base, "TERM=xterm-256color", "COLORTERM=truecolor")
	base = append(base, spec.Env...)
	base = append(base, "HOLDFAST_SESSION="+string(i.id), "HOLDFAST_INSTANCE="+string(i.instance), "PWD="+i.dir)
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

// isSet reports whether an environment has a variable.
func isSet(env []string, variable string) bool {
	return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, variable+"=") })
}

// workDir returns the directory in which a child starts: the requested one, else the home
// directory, else the root. It may wait for the file system of the home directory, so loop must not call it.
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

// Environment returns the environment, as K=V, of the last viewer that sent one. Errors:
// session_not_found, busy.
func (s *Session) Environment() ([]string, error) {
	env := []string{}
	if err := s.ask(answerTime, func() { env = append(env, s.saved.ViewerEnv...) }); err != nil {
		return nil, err
	}
	return env, nil
}
