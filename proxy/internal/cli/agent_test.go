//go:build unix

package cli

import (
	"context"
	"testing"
	"time"

	"holdfast/shared/config"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// An agent that does not answer must not be taken for one of an older release, which a user would be told to end.
func TestAgentSilent(t *testing.T) {
	dirs := config.Dirs{Runtime: testkit.Dir(t)}
	ln, err := socket.Listen(dirs.Socket(AgentSocket), socket.Options{})
	testkit.Must(t, err)
	defer ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if agent, err := AgentHere(ctx, dirs); err == nil {
		t.Errorf("the agent is %+v, want an error", agent)
	}
}
