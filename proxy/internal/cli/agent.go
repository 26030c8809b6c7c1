package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/config"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
)

// AgentSocket is the name of the socket on which the agent of a host that has joined a gate answers the commands of this
// host. Its lock makes the agent the only one.
const AgentSocket = "join.sock"

// AgentAbout is the line with which a command asks the agent for an Agent, as a line of JSON.
const AgentAbout = "about"

const (
	aboutLimit = 5 * time.Second       // for an answer of the agent
	agentPoll  = 50 * time.Millisecond // how often a command asks whether the successor of an agent serves
)

// An Agent is the agent that runs on this host.
type Agent struct {
	PID         int    `json:"pid"`
	Version     string `json:"version"`             // "" if the agent is of a release that does not answer
	IsUpgrading bool   `json:"upgrading,omitempty"` // it upgrades this host, and then itself
}

// AgentHere returns the agent that runs on this host, or nil if none runs.
func AgentHere(ctx context.Context, dirs config.Dirs) (*Agent, error) {
	conn, peer, err := socket.DialOwner(ctx, dirs.Socket(AgentSocket))
	if socket.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(aboutLimit)) // if it fails, reading fails, too
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := fmt.Fprintln(conn, AgentAbout); err != nil {
		return nil, fmt.Errorf("the agent does not answer: %w", err)
	}
	agent := &Agent{PID: peer.PID}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, exitcode.Newf(sysexits.TempFail, "the agent, pid %d, does not answer", peer.PID)
	}
	if len(line) == 0 { // an older agent closes the connection
		return agent, nil
	}
	if err := json.Unmarshal(line, agent); err != nil {
		return nil, fmt.Errorf("answer of the agent: %w", err)
	}
	return agent, nil
}

// HandOffAgent starts this program as the successor of the agent that runs, and returns a text that tells that it serves.
func (a *App) HandOffAgent(ctx context.Context, dirs config.Dirs) (text string, err error) {
	old, err := AgentHere(ctx, dirs)
	if err != nil {
		return "", err
	}
	if old == nil {
		return "", exitcode.New(sysexits.Unavailable, "no agent runs here; start one with proxy join")
	}
	p, err := a.StartDaemon(ctx, "join", "--handoff", "--background")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, StartTimeout+Grace)
	defer cancel()
	for {
		if now, err := AgentHere(ctx, dirs); err == nil && now != nil && now.PID != old.PID && now.Version != "" {
			return fmt.Sprintf("agent: %s serves as pid %d; pid %d ends when its clients have left it", build(now.Version), now.PID, old.PID), nil
		}
		select {
		case <-p.Exited:
			return "", exitcode.Newf(sysexits.TempFail, "the agent, pid %d, continues with its program; the reason is in %s", old.PID, filepath.Join(dirs.State, "join.log"))
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(agentPoll):
		}
	}
}
