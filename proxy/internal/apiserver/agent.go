package apiserver

import (
	"slices"
	"strings"
)

// agentEnv is where ssh finds its agent.
const agentEnv = "SSH_AUTH_SOCK="

// followAgent tells where the client's ssh agent is, and returns the environment with
// the place where it is found from now on. Of clients that are not this user's own, or
// may be on another machine, nothing is told: their agents would be everybody's.
func (c *conn) followAgent(env []string) []string {
	if c.s.cfg.Agent == nil || !c.from.Principal.All || c.from.Transport != TransportUnix {
		return env
	}
	for i := len(env) - 1; i >= 0; i-- { // the last one counts
		socket, ok := strings.CutPrefix(env[i], agentEnv)
		if !ok {
			continue
		}
		path, err := c.s.cfg.Agent(socket)
		if err != nil {
			return env // and no environment is logged
		}
		env = slices.Clone(env)
		env[i] = agentEnv + path
		return env
	}
	return env
}
