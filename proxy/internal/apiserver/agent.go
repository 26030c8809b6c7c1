package apiserver

import (
	"slices"
	"strings"
)

// agentEnv is the environment variable that contains the socket of the ssh agent.
const agentEnv = "SSH_AUTH_SOCK="

// followAgent passes the socket of the client's ssh agent to Config.Agent, and returns env with the
// path by which the session reaches that agent. It ignores clients of other users and clients that
// may be on another machine, because all sessions of this user share the agent.
func (c *caller) followAgent(env []string) []string {
	if c.s.cfg.Agent == nil || !c.from.Principal.All || c.from.Transport != TransportUnix {
		return env
	}
	for i := len(env) - 1; i >= 0; i-- { // the last value is valid
		socket, ok := strings.CutPrefix(env[i], agentEnv)
		if !ok {
			continue
		}
		path, err := c.s.cfg.Agent(socket)
		if err != nil {
			return env // the error is not logged, because it may contain parts of the environment
		}
		env = slices.Clone(env)
		env[i] = agentEnv + path
		return env
	}
	return env
}
