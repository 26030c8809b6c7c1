package apiserver

import (
	"errors"
	"slices"
	"testing"

	"github.com/rs/zerolog"

	"holdfast/proxy/policy"
)

// followAgent replaces the ssh agent in the environment of a new session by the link, for clients of the user's own
// socket only.
func TestFollowAgent(t *testing.T) {
	all, one := &policy.Principal{All: true}, &policy.Principal{Workspace: "w"}
	for _, tt := range []struct {
		name      string
		who       *policy.Principal
		transport string
		env, want []string
		agent     string
		off       bool
	}{
		{name: "one's own", who: all, transport: TransportUnix, env: []string{"A=1", "SSH_AUTH_SOCK=/a", "B="}, want: []string{"A=1", "SSH_AUTH_SOCK=/link", "B="}, agent: "/a"},
		{name: "the last one counts", who: all, transport: TransportUnix, env: []string{"SSH_AUTH_SOCK=/a", "SSH_AUTH_SOCK=/b"},
			want: []string{"SSH_AUTH_SOCK=/a", "SSH_AUTH_SOCK=/link"}, agent: "/b"},
		{name: "none", who: all, transport: TransportUnix, env: []string{"A=1"}, want: []string{"A=1"}},
		{name: "no agent", who: all, transport: TransportUnix, env: []string{"SSH_AUTH_SOCK=/bad"}, want: []string{"SSH_AUTH_SOCK=/bad"}, agent: "/bad"},
		{name: "a page's", who: all, transport: TransportWeb, env: []string{"SSH_AUTH_SOCK=/a"}, want: []string{"SSH_AUTH_SOCK=/a"}},
		{name: "of a workspace", who: one, transport: TransportUnix, env: []string{"SSH_AUTH_SOCK=/a"}, want: []string{"SSH_AUTH_SOCK=/a"}},
		{name: "off", who: all, transport: TransportUnix, env: []string{"SSH_AUTH_SOCK=/a"}, want: []string{"SSH_AUTH_SOCK=/a"}, off: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			agent := ""
			s := &Server{cfg: Config{Agent: func(socket string) (string, error) {
				if agent = socket; socket == "/bad" {
					return "", errors.New("no agent")
				}
				return "/link", nil
			}}}
			if tt.off {
				s.cfg.Agent = nil
			}
			c := &caller{s: s, from: Origin{Transport: tt.transport, Principal: tt.who}, log: zerolog.Nop()}
			before := slices.Clone(tt.env)
			if got := c.followAgent(tt.env); !slices.Equal(got, tt.want) || agent != tt.agent || !slices.Equal(tt.env, before) {
				t.Errorf("got %q, want %q; the agent is %q, want %q", got, tt.want, agent, tt.agent)
			}
		})
	}
}
