package doctor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"holdfast/protocol"
)

// maxNames is how many hosts a finding names.
const maxNames = 10

// A Host is a host that has joined the gate of the settings.
type Host struct {
	Name        string
	IsReachable bool
	Release     string // "" if the gate does not know it
}

// An Agent is the agent of this host, which has joined a gate.
type Agent struct {
	Host, Gate  string // name of this host, and address of the gate
	IsRunning   bool
	IsConnected bool   // with the gate
	Reason      string // why the agent is not connected
}

// gate returns whether the gate of the settings serves this user, and which of its hosts are not
// connected or have another release than this program.
func (l *inspection) gate(ctx context.Context) []Finding {
	const check = "fleet"
	const newText = "on the gate, proxy gate client-token prints the text for the setting gate"
	if l.Gate == nil {
		return orOK(nil, check, "no gate is set")
	}
	hosts, err := within(ctx, l.Gate)
	switch {
	case errors.Is(err, ErrNotAsked):
		return []Finding{{check, Warning, err.Error(), newText}}
	case protocol.CodeOf(err) == protocol.CodeUnauthorized:
		return []Finding{{check, Warning, fmt.Sprintf("the gate refuses this user, or another server has its address: %v", err), newText}}
	case err != nil:
		return []Finding{{check, Warning, fmt.Sprintf("the gate cannot be reached: %v", err), "see whether proxy gate runs there, and whether this machine reaches its address and port"}}
	}
	var away, others []string
	for _, h := range hosts {
		switch {
		case !h.IsReachable:
			away = append(away, h.Name)
		case h.Release != "" && h.Release != l.Version:
			others = append(others, h.Name+" ("+h.Release+")")
		}
	}
	var found []Finding
	if len(away) > 0 {
		found = append(found, Finding{check, Warning, "hosts that are not connected: " + list(away),
			"if they run, see proxy doctor there; proxy gate revoke HOST on the gate removes one that is gone"})
	}
	if len(others) > 0 {
		found = append(found, Finding{check, Note, fmt.Sprintf("hosts whose agent has another release than this program (%s): %s", l.Version, list(others)),
			"install the same release there, and run proxy upgrade there; it replaces the agent, too, and no session ends"})
	}
	return orOK(found, check, fmt.Sprintf("it is reached; connected hosts: %d", len(hosts)))
}

// list returns names as text.
func list(names []string) string {
	if len(names) > maxNames {
		names = append(names[:maxNames:maxNames], fmt.Sprintf("and %d more", len(names)-maxNames))
	}
	return strings.Join(names, ", ")
}

// agent returns whether clients of the gate that this host has joined can enter this host.
func (l *inspection) agent(ctx context.Context) []Finding {
	const check = "agent"
	a, err := within(ctx, l.Agent)
	switch {
	case err != nil:
		return []Finding{{check, Warning, fmt.Sprintf("unknown: %v", err), "proxy join starts it if it does not run; proxy leave undoes the join"}}
	case a == nil:
		return orOK(nil, check, "this host has not joined a gate")
	case !a.IsRunning:
		return []Finding{{check, Warning, fmt.Sprintf("this host has joined the gate %s as %s, but its agent does not run", a.Gate, a.Host), "proxy join starts it"}}
	case !a.IsConnected:
		return []Finding{{check, Warning, fmt.Sprintf("the agent of %s is not connected with the gate %s, and tries again: %s", a.Host, a.Gate, a.Reason),
			"see " + filepath.Join(l.Dirs.State, "join.log") + "; if the gate has lost or revoked this host: proxy leave, then proxy join with a new text"}}
	}
	return orOK(nil, check, fmt.Sprintf("the agent of %s is connected with the gate %s", a.Host, a.Gate))
}
