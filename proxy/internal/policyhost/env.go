package policyhost

import (
	"slices"
	"strings"
)

// configEnv tells the program where its configuration is.
const configEnv = "HOLDFAST_POLICY_CONFIG"

// passed is what the program may know of our environment. It is a list of what
// is allowed because of what must not leak: our token and secrets, the sockets
// of systemd, and whatever else there will be. The interpreters' own variables
// are there so that a program finds its libraries.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "HOLDFAST_DIR",
	"PYTHONPATH", "VIRTUAL_ENV", "NODE_PATH",
}

func allowed(name string) bool {
	return slices.Contains(passed, name) || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_")
}

// environment returns what the program gets of environ.
func environment(environ []string, configFile string) []string {
	var env []string
	for _, kv := range environ {
		if name, _, ok := strings.Cut(kv, "="); ok && allowed(name) {
			env = append(env, kv)
		}
	}
	if configFile != "" {
		env = append(env, configEnv+"="+configFile)
	}
	return env
}
