package protocol

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// A Principal is the identity of a client, as a policy has established it.
type Principal struct {
	User string `json:"user"`
	// Workspace selects the visible sessions: those whose label workspace_id is equal. "" selects the
	// sessions without that label.
	Workspace string   `json:"workspace,omitempty"`
	Roles     []string `json:"roles,omitempty"` // which the policy has given the user, for its further decisions
	All       bool     `json:"all,omitempty"`   // the principal sees the sessions of every workspace
}

// CanSee reports whether the principal sees a session with these labels.
func (p Principal) CanSee(labels map[string]string) bool {
	return p.All || labels[LabelWorkspace] == p.Workspace
}

// IDs returns the ids of the sessions that the principal can mean by id. If it does not see all workspaces,
// an id that it has chosen was extended by the suffix of its workspace.
func (p Principal) IDs(id SessionID) []SessionID {
	if extended := id + WorkspaceSuffix(p.Workspace); !p.All && ValidID(string(extended)) {
		return []SessionID{id, extended}
	}
	return []SessionID{id}
}

// WorkspaceSuffix returns the suffix of the ids that clients of a workspace choose. Its 40 bits prevent
// accidental collisions. They need not prevent intended ones, because a person with the right to choose the
// name of a workspace could also enter the workspace.
func WorkspaceSuffix(workspace string) SessionID {
	sum := sha256.Sum256([]byte(workspace))
	return SessionID("-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5])))
}
