package apiserver

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/proxy/policy"
)

// A session belongs to the workspace that its label names. For a client of another workspace
// the session does not exist: every request about it is answered as if the id were unused.
//
// Workspaces must not share ids, because otherwise a client could choose ids and learn from the
// answers which of them are in use. An id that a client chooses is therefore extended by a suffix
// that stands for the client's workspace. The client may use the id with or without the suffix.

// canSee reports whether the client can see the session.
func (c *caller) canSee(i *protocol.SessionInfo) bool {
	if s := c.from.Share; s != nil && (i.ID != s.Session || i.Instance != s.Instance) {
		return false
	}
	return protocol.Principal(*c.from.Principal).CanSee(i.Labels)
}

// visible returns the sessions that the client can see, in the form in which it may see them.
func (c *caller) visible(all []protocol.SessionInfo) []protocol.SessionInfo {
	var some []protocol.SessionInfo
	for _, info := range all {
		if c.canSeeAll() || c.canSee(&info) {
			some = append(some, c.clientView(info))
		}
	}
	return some
}

// A target is the session that an authorised request is about. instance is empty if the session was
// not looked up, because the client may do everything.
type target struct {
	id          protocol.SessionID
	instance    protocol.Instance
	requestedID protocol.SessionID // the id in the request
}

// asNotFound replaces the supervisor's error that the id has passed to another instance by the
// error that the client would have received if the lookup had happened after that.
func (l target) asNotFound(err error) error {
	if l.instance != "" && protocol.CodeOf(err) == protocol.CodeInstanceMismatch {
		return notFound(l.requestedID)
	}
	return err
}

func notFound(id protocol.SessionID) error {
	return protocol.Errorf(protocol.CodeSessionNotFound, "no session %s", id)
}

// authorizeSession checks that the client may do verb to the session, and returns the session. The
// supervisor receives the instance of the target, so that the request does not reach a session
// that takes the id meanwhile.
func (c *caller) authorizeSession(ctx context.Context, verb policy.Verb, id protocol.SessionID) (target, error) {
	if !c.s.hasPolicy() && c.canSeeAll() {
		return target{id: id, requestedID: id}, nil
	}
	info, err := c.find(ctx, id)
	if err != nil {
		return target{}, err
	}
	err = c.authorize(ctx, policy.Access{Verb: verb, SessionID: string(info.ID), Labels: info.Labels})
	return target{id: info.ID, instance: info.Instance, requestedID: id}, err
}

// notFoundTime is the time from a request until its client learns that a session does not exist, if
// the client cannot see all sessions. Looking up a session of another workspace, and logging the
// refusal, takes some tens of microseconds longer than looking up an unused id. Without this delay,
// a client could learn by measuring many requests which ids are in use.
const notFoundTime = 20 * time.Millisecond

// find returns the session that the client means by id, or session_not_found if it cannot see one.
func (c *caller) find(ctx context.Context, id protocol.SessionID) (*protocol.SessionInfo, error) {
	begun := time.Now()
	info, err := c.lookUp(ctx, id)
	if protocol.CodeOf(err) == protocol.CodeSessionNotFound && !c.canSeeAll() {
		select {
		case <-time.After(notFoundTime - time.Since(begun)):
		case <-ctx.Done():
		}
	}
	return info, err
}

// lookUp finds a session by the id, or by the id with the suffix of the client's workspace. A
// session that the client cannot see is reported as a refusal.
func (c *caller) lookUp(ctx context.Context, id protocol.SessionID) (*protocol.SessionInfo, error) {
	var hidden *protocol.SessionInfo
	for _, name := range protocol.Principal(*c.from.Principal).IDs(id) {
		m, err := wire.ReplyAs[*wire.Session](c.s.cfg.Link.Call(ctx, wire.Info{SessionID: name}))
		if err != nil {
			if protocol.CodeOf(err) == protocol.CodeSessionNotFound {
				continue
			}
			return nil, err
		}
		if c.canSee(&m.Session) {
			return &m.Session, nil
		}
		hidden = &m.Session
	}
	if hidden != nil {
		c.reportRefusal(policy.Access{SessionID: string(hidden.ID), Labels: hidden.Labels}, notFound(id))
	}
	return nil, notFound(id)
}

// authorize asks the policy. It reports a refusal to the policy as well, which may keep an audit.
func (c *caller) authorize(ctx context.Context, a policy.Access) error {
	if !c.s.hasPolicy() {
		return nil
	}
	a.Principal = *c.from.Principal
	err := policyError(c.s.cfg.Policy.Authorize(ctx, a))
	if err != nil && ctx.Err() == nil {
		c.reportRefusal(a, err)
	}
	return err
}

// authorizeList asks the policy whether the client may list its sessions.
func (c *caller) authorizeList(ctx context.Context) error {
	return c.authorize(ctx, policy.Access{Verb: policy.VerbList, Labels: c.ownLabels(nil)})
}

// authorizeSpawn checks that the client may start the session, and changes create so that the
// session belongs to the client's workspace.
func (c *caller) authorizeSpawn(ctx context.Context, create *wire.Create) error {
	id, spec := &create.SessionID, &create.SpawnSpec
	if !c.from.Principal.All { // otherwise clients choose their originators freely
		create.Account = "workspace:" + c.from.Principal.Workspace
	}
	labels, err := c.spawnLabels(spec.Labels)
	if err != nil {
		c.reportRefusal(policy.Access{Verb: policy.VerbSpawn, SessionID: string(*id), Labels: spec.Labels}, err)
		return err
	}
	spec.Labels = labels
	if *id != "" && !c.from.Principal.All {
		if err := id.Validate(); err != nil {
			return err
		}
		if *id = c.ownID(*id); !protocol.ValidID(string(*id)) {
			return protocol.Errorf(protocol.CodeInvalidArgument, "the session id is too long: in this workspace an id has at most %d characters", protocol.MaxIDLen-len(c.suffix()))
		}
	}
	return c.authorize(ctx, policy.Access{Verb: policy.VerbSpawn, SessionID: string(*id), Labels: labels, Argv: spec.Argv, WorkDir: spec.Cwd})
}

// authorizeReopen checks that the client may start the session again with the given change.
func (c *caller) authorizeReopen(ctx context.Context, id protocol.SessionID, change *protocol.RespawnSpec) (target, error) {
	if !c.s.hasPolicy() && c.from.Principal.All {
		return target{id: id, requestedID: id}, nil
	}
	info, err := c.find(ctx, id)
	if err != nil {
		return target{}, err
	}
	would := change.Apply(protocol.SpawnSpec{Argv: info.Argv, Cwd: info.Cwd, Labels: info.Labels})
	if would.Labels, err = c.spawnLabels(would.Labels); err != nil {
		c.reportRefusal(policy.Access{Verb: policy.VerbSpawn, SessionID: string(info.ID), Labels: info.Labels}, err)
		return target{}, err
	}
	if change.Labels != nil {
		change.Labels = would.Labels
	}
	err = c.authorize(ctx, policy.Access{
		Verb: policy.VerbSpawn, SessionID: string(info.ID), Labels: would.Labels, Argv: would.Argv, WorkDir: would.Cwd,
	})
	return target{id: info.ID, instance: info.Instance, requestedID: id}, err
}

// spawnLabels returns the labels of a session that the client starts. It fails if labels name
// another workspace than the client's.
func (c *caller) spawnLabels(labels map[string]string) (map[string]string, error) {
	if principal := c.from.Principal; !principal.All && cmp.Or(labels[protocol.LabelWorkspace], principal.Workspace) != principal.Workspace {
		return nil, otherWorkspace()
	}
	return c.ownLabels(labels), nil
}

// ownLabels returns labels with the client's workspace and user, if the policy has restricted the
// client to a workspace.
func (c *caller) ownLabels(labels map[string]string) map[string]string {
	principal := c.from.Principal
	if principal.All {
		return labels
	}
	own := maps.Clone(labels)
	if own == nil {
		own = map[string]string{}
	}
	delete(own, protocol.LabelWorkspace)
	for label, value := range map[string]string{protocol.LabelWorkspace: principal.Workspace, protocol.LabelUser: principal.User} {
		if value != "" {
			own[label] = value
		}
	}
	return own
}

func otherWorkspace() error {
	return protocol.Errorf(protocol.CodeWorkspaceMismatch, "the request names another workspace than the client's")
}

// suffix returns the suffix for the ids of the client's workspace.
func (c *caller) suffix() protocol.SessionID {
	return protocol.WorkspaceSuffix(c.from.Principal.Workspace)
}

// ownID returns id with the suffix of the client's workspace.
func (c *caller) ownID(id protocol.SessionID) protocol.SessionID {
	if s := c.suffix(); !strings.HasSuffix(string(id), string(s)) {
		id += s
	}
	return id
}

// attachVerb returns the verb that the policy is asked about for an attachment of the given mode.
func attachVerb(mode protocol.Mode) policy.Verb {
	if mode == protocol.ModeReadOnly {
		return policy.VerbRead
	}
	return policy.VerbType
}
