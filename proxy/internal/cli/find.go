package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
	"holdfast/shared/plain"
)

// maxCandidates is how many sessions with the same id an error lists.
const maxCandidates = 10

// hostOf returns the host of the gate that has the session id, for a command that names no host. It
// returns "" if the session is on this host, if no gate is set, or if the flags select a proxy. A session
// on this host always wins, so the gate is asked only if there is none.
func (a *App) hostOf(ctx context.Context, id protocol.SessionID) (string, error) {
	if a.Host != "" || a.Dir != "" || a.Proxy != config.DefaultProxy {
		return "", nil
	}
	cfg, err := a.Settings()
	if err != nil || cfg.Gate == "" || a.mayBeHere(ctx, id) {
		return "", err
	}
	o, err := gateOptions(cfg)
	if err != nil {
		return "", err
	}
	stop := tellLate(o)
	rows, err := client.AllSessions(ctx, o, client.GateFilter{ID: id, Limit: maxCandidates + 1})
	stop()
	switch {
	case err != nil:
		return "", fmt.Errorf("session %s is not on this host, and the gate cannot be asked: %w", id, err)
	case len(rows) == 0:
		return "", protocol.Errorf(protocol.CodeSessionNotFound, "session %s is neither on this host nor on a host of the gate", id)
	case len(rows) == 1:
		return rows[0].Host, nil
	}
	var names []string
	for _, r := range rows[:min(len(rows), maxCandidates)] {
		names = append(names, plain.Text(r.Host+"/"+string(r.ID)))
	}
	if len(rows) > maxCandidates {
		names = append(names, "…")
	}
	return "", protocol.Errorf(protocol.CodeSessionNotFound, "several hosts have a session %s; name one of them: %s", id, strings.Join(names, ", "))
}

// mayBeHere reports whether this host may have the session id. If that is not known, the command meets the
// reason when it connects.
func (a *App) mayBeHere(ctx context.Context, id protocol.SessionID) bool {
	if pipe.Here { // no session can run on this system
		return false
	}
	err := a.withClient(ctx, func(c *client.Client) error {
		_, err := c.SessionInfo(ctx, id)
		return err
	})
	return !errors.Is(err, ErrNothingHere) && protocol.CodeOf(err) != protocol.CodeSessionNotFound
}
