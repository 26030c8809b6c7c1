package policyhost

import (
	"slices"
	"strings"
)

// configEnv is the variable that contains the path of the program's configuration.
const configEnv = "HOLDFAST_POLICY_CONFIG"

// allowedNames lists the environment variables that are passed to the program. It lists the
// allowed ones because the proxy's token, its secrets and systemd's sockets must not leak. The
// variables of interpreters are included so that a program finds its libraries.
var allowedNames = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "HOLDFAST_DIR",
	"PYTHONPATH", "VIRTUAL_ENV", "NODE_PATH",
}

func allowed(name string) bool {
	return slices.Contains(allowedNames, name) || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_")
}

// environment returns the variables of environ that the program may see, and the path of its
// configuration.
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
