package session

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/shared/mask"
	"holdfast/supervisor/internal/past"
)

// identity distinguishes one instance of a session from all others, and tells how it was created. It
// never changes.
type identity struct {
	id        protocol.SessionID
	instance  protocol.Instance
	spec      protocol.SpawnSpec // without labels; its limits are those of the request
	dir       string             // in which the child has started
	token     string             // of the request that started this instance
	origin    string             // token of the request that created the session, also if it was started again since
	account   string             // the session counts towards the limits of this name
	early     time.Duration      // if the session ends within this time after its start, its opener removes it; see before.go
	continues bool               // the screen began with the lines of an earlier instance
	replaces  protocol.Instance  // the instance that was started again as this one; "" if there was none
	created   time.Time
	masker    *mask.Masker // finds the session's secrets; nil if there are none
	unmasked  []string     // names of secret variables that are not masked
}

// known returns the part of a session that a registry reads.
func (i *identity) known() *identity { return i }

// ID and Instance may be called by any goroutine. They never change.
func (i *identity) ID() protocol.SessionID      { return i.id }
func (i *identity) Instance() protocol.Instance { return i.instance }

// life returns the name of the session's recording.
func (i *identity) life() past.Life { return past.Life{ID: i.id, Instance: i.instance} }

// logger returns the logger that names the session.
func (i *identity) logger(log zerolog.Logger) zerolog.Logger {
	return log.With().Str(logging.Session, string(i.id)).Str(logging.Instance, string(i.instance)).Logger()
}

// checkInstance returns instance_mismatch unless instance is empty or that of the session.
func (i *identity) checkInstance(instance protocol.Instance) error {
	if instance == "" || i.instance == instance {
		return nil
	}
	return protocol.Errorf(protocol.CodeInstanceMismatch, "session %s is instance %s, not %s; name the present instance, or none", i.id, i.instance, instance)
}

// savedSpec is the request that created the session.
type savedSpec struct {
	protocol.SpawnSpec
	Scrollback int               `json:"scrollback"` // lines, after limits and defaults
	Token      string            `json:"token,omitempty"`
	Origin     string            `json:"origin,omitempty"`
	Account    string            `json:"account,omitempty"`
	EarlyMS    int64             `json:"early_ms,omitempty"`
	Continues  bool              `json:"continues,omitempty"`
	Replaces   protocol.Instance `json:"replaces,omitempty"`
	Created    time.Time         `json:"created"`
	Dir        string            `json:"dir,omitempty"`
}

// save returns the identity as JSON, besides id and instance, with the present labels and limits.
func (i *identity) save(labels map[string]string, limits protocol.Limits) (json.RawMessage, error) {
	spec := savedSpec{SpawnSpec: i.spec, Scrollback: i.spec.ScrollbackLines, Token: i.token, Origin: i.origin, Account: i.account, EarlyMS: i.early.Milliseconds(), Continues: i.continues, Replaces: i.replaces, Created: i.created, Dir: i.dir}
	spec.Labels, spec.Limits = labels, limits
	return protocol.Marshal(spec) // without escapes for HTML, as package past stores it
}

// loadIdentity returns the identity of a saved session, and its labels.
func loadIdentity(v *savedState) (identity, map[string]string, error) {
	var saved savedSpec
	if err := json.Unmarshal(v.Spec, &saved); err != nil {
		return identity{}, nil, fmt.Errorf("%w: session %s: %w", errDamaged, v.ID, err)
	}
	i := identity{
		id: v.ID, instance: v.Instance, spec: saved.SpawnSpec, token: saved.Token, origin: saved.Origin, account: saved.Account,
		early: time.Duration(saved.EarlyMS) * time.Millisecond, continues: saved.Continues, replaces: saved.Replaces, created: saved.Created, dir: saved.Dir,
	}
	if i.origin == "" && i.replaces == "" { // an earlier release has saved it
		i.origin = i.token
	}
	if i.dir == "" { // an earlier release has saved it
		i.dir = workDir(saved.SpawnSpec)
	}
	i.spec.ScrollbackLines, i.spec.Labels = min(max(saved.Scrollback, 0), protocol.MaxScrollback), nil
	return i, saved.Labels, nil
}
