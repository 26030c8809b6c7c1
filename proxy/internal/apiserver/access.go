package apiserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/policy"
)

// A session belongs to the workspace that its label names. To a client of
// another one it does not exist: whatever it asks, it learns what it would learn
// of an id that nobody has.
//
// Ids are not shared either, or a client could find out by choosing some which
// are taken. An id that a client of one workspace chooses is given a suffix that
// stands for its workspace, and is found by that client with or without it.

// sees reports whether a session is there for the client.
func (c *conn) sees(i *protocol.SessionInfo) bool {
	if s := c.from.Share; s != nil && (i.ID != s.Session || i.Instance != s.Instance) {
		return false
	}
	who := c.from.Principal
	return who.All || i.Labels[protocol.LabelWorkspace] == who.Workspace
}

// visible returns those sessions that are there for the client.
func (c *conn) visible(all []protocol.SessionInfo) []protocol.SessionInfo {
	var some []protocol.SessionInfo
	for _, info := range all {
		if c.seesAll() || c.sees(&info) {
			some = append(some, c.shown(info))
		}
	}
	return some
}

// A life is which session a request means, once it is known that it may be made.
// The instance is empty where nobody had to look.
type life struct {
	id       protocol.SessionID
	instance protocol.Instance
	asked    protocol.SessionID // what the client called it
}

// gone turns the supervisor's answer that the id has passed to another life into
// what the client would have been told had it asked after that.
func (l life) gone(err error) error {
	if l.instance != "" && protocol.CodeOf(err) == protocol.CodeInstanceMismatch {
		return notFound(l.asked)
	}
	return err
}

func notFound(id protocol.SessionID) error {
	return protocol.Errorf(protocol.CodeSessionNotFound, fmt.Sprintf("no session %s", id))
}

// allowed says whether the client may do what a request asks for, and returns
// the session that is meant. The supervisor is told its instance, so that it does
// it to no session that came in between.
func (c *conn) allowed(ctx context.Context, verb policy.Verb, id protocol.SessionID) (life, error) {
	if !c.s.watched() && c.seesAll() {
		return life{id: id, asked: id}, nil
	}
	info, err := c.find(ctx, id)
	if err != nil {
		return life{}, err
	}
	err = c.may(ctx, policy.Access{Verb: verb, SessionID: string(info.ID), Labels: info.Labels})
	return life{id: info.ID, instance: info.Instance, asked: id}, err
}

// notFoundTime is when a client that does not see all is told that a session does not
// exist, counted from its question. To look up a session of another workspace takes
// longer than to look up none, some tens of microseconds, and so does what is logged
// of it: a client that measures many tries would learn which ids there are. Both
// take far less than this.
const notFoundTime = 20 * time.Millisecond

// find returns the session that the client means by an id, if it is there for it.
func (c *conn) find(ctx context.Context, id protocol.SessionID) (*protocol.SessionInfo, error) {
	begun := time.Now()
	info, err := c.lookUp(ctx, id)
	if protocol.CodeOf(err) == protocol.CodeSessionNotFound && !c.seesAll() {
		select {
		case <-time.After(notFoundTime - time.Since(begun)):
		case <-ctx.Done():
		}
	}
	return info, err
}

func (c *conn) lookUp(ctx context.Context, id protocol.SessionID) (*protocol.SessionInfo, error) {
	names := []protocol.SessionID{id}
	if !c.from.Principal.All {
		names = append(names, id+c.suffix())
	}
	var hidden *protocol.SessionInfo
	for _, name := range names {
		if !protocol.ValidID(string(name)) && name != id {
			break
		}
		reply, err := c.s.cfg.Link.Call(ctx, wire.Info{SessionID: name})
		if err != nil {
			if protocol.CodeOf(err) == protocol.CodeSessionNotFound {
				continue
			}
			return nil, err
		}
		m, ok := reply.(*wire.Session)
		if !ok {
			return nil, protocol.Errorf(protocol.CodeInternal, "info answered by "+reply.MessageType())
		}
		if c.sees(&m.Session) {
			return &m.Session, nil
		}
		hidden = &m.Session
	}
	if hidden != nil {
		c.tellRefused(policy.Access{SessionID: string(hidden.ID), Labels: hidden.Labels}, notFound(id))
	}
	return nil, notFound(id)
}

// may asks the policy. What is refused is told to it as well, for its audit.
func (c *conn) may(ctx context.Context, a policy.Access) error {
	if !c.s.watched() {
		return nil
	}
	a.Principal = *c.from.Principal
	err := decided(c.s.cfg.Policy.Authorize(ctx, a))
	if err != nil && ctx.Err() == nil {
		c.tellRefused(a, err)
	}
	return err
}

// mayList asks whether the client may see what sessions it has.
func (c *conn) mayList(ctx context.Context) error {
	return c.may(ctx, policy.Access{Verb: policy.VerbList, Labels: c.labels(nil)})
}

// maySpawn says whether the client may start a session, and makes it one of the
// client's workspace.
func (c *conn) maySpawn(ctx context.Context, create *wire.Create) error {
	id, spec := &create.SessionID, &create.SpawnSpec
	if !c.from.Principal.All { // whose originators are but names
		create.Account = "workspace:" + c.from.Principal.Workspace
	}
	labels, err := c.labelled(spec.Labels)
	if err != nil {
		c.tellRefused(policy.Access{Verb: policy.VerbSpawn, SessionID: string(*id), Labels: spec.Labels}, err)
		return err
	}
	spec.Labels = labels
	if *id != "" && !c.from.Principal.All {
		if err := id.Validate(); err != nil {
			return err
		}
		if *id = c.ownID(*id); !protocol.ValidID(string(*id)) {
			return protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf(
				"a session's id of a workspace's client has at most %d characters", protocol.MaxIDLen-len(c.suffix())))
		}
	}
	return c.may(ctx, policy.Access{Verb: policy.VerbSpawn, SessionID: string(*id), Labels: labels, Argv: spec.Argv, WorkDir: spec.Cwd})
}

// mayReopen is maySpawn for a session that is started again.
func (c *conn) mayReopen(ctx context.Context, id protocol.SessionID, change *protocol.RespawnSpec) (life, error) {
	if !c.s.watched() && c.from.Principal.All {
		return life{id: id, asked: id}, nil
	}
	info, err := c.find(ctx, id)
	if err != nil {
		return life{}, err
	}
	would := change.Apply(protocol.SpawnSpec{Argv: info.Argv, Cwd: info.Cwd, Labels: info.Labels})
	if would.Labels, err = c.labelled(would.Labels); err != nil {
		c.tellRefused(policy.Access{Verb: policy.VerbSpawn, SessionID: string(info.ID), Labels: info.Labels}, err)
		return life{}, err
	}
	if change.Labels != nil {
		change.Labels = would.Labels
	}
	err = c.may(ctx, policy.Access{
		Verb: policy.VerbSpawn, SessionID: string(info.ID), Labels: would.Labels, Argv: would.Argv, WorkDir: would.Cwd,
	})
	return life{id: info.ID, instance: info.Instance, asked: id}, err
}

// labelled returns the labels of a session that the client starts.
func (c *conn) labelled(labels map[string]string) (map[string]string, error) {
	if who := c.from.Principal; !who.All && cmp.Or(labels[protocol.LabelWorkspace], who.Workspace) != who.Workspace {
		return nil, otherWorkspace()
	}
	return c.labels(labels), nil
}

// labels are those of a session, and who the client is.
func (c *conn) labels(labels map[string]string) map[string]string {
	who := c.from.Principal
	if who.All {
		return labels
	}
	own := maps.Clone(labels)
	if own == nil {
		own = map[string]string{}
	}
	delete(own, protocol.LabelWorkspace)
	for label, value := range map[string]string{protocol.LabelWorkspace: who.Workspace, protocol.LabelUser: who.User} {
		if value != "" {
			own[label] = value
		}
	}
	return own
}

func otherWorkspace() error {
	return protocol.Errorf(protocol.CodeWorkspaceMismatch, "this is another workspace than the client's")
}

// suffix stands for the client's workspace in the ids of its sessions. 40 bits
// keep workspaces apart that did not try to meet; who could choose the name of a
// workspace could enter it as well.
func (c *conn) suffix() protocol.SessionID {
	sum := sha256.Sum256([]byte(c.from.Principal.Workspace))
	return protocol.SessionID("-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5])))
}

// ownID is what the client's session is called.
func (c *conn) ownID(id protocol.SessionID) protocol.SessionID {
	if s := c.suffix(); !strings.HasSuffix(string(id), string(s)) {
		id += s
	}
	return id
}

// access is what a request does with which session; ok is false for those that
// have another way.
func access(m protocol.Message) (verb policy.Verb, id protocol.SessionID, ok bool) {
	switch m := m.(type) {
	case *api.Info:
		return policy.VerbList, m.SessionID, true
	case *api.Wait:
		return policy.VerbList, m.SessionID, true
	case *api.Scrollback:
		return policy.VerbRead, m.SessionID, true
	case *api.Screen:
		return policy.VerbRead, m.SessionID, true
	case *api.History:
		return policy.VerbRead, m.SessionID, true
	case *api.Search:
		return policy.VerbRead, m.SessionID, true
	case *api.Environment: // it is another viewer's
		return policy.VerbType, m.SessionID, true
	case *api.Away:
		return policy.VerbRead, m.SessionID, true
	case *api.Mark:
		return policy.VerbRead, m.SessionID, true
	case *api.Await:
		return policy.VerbRead, m.SessionID, true
	case *api.Input:
		return policy.VerbType, m.SessionID, true
	case *api.Resize:
		return policy.VerbType, m.SessionID, true
	case *api.Rename:
		return policy.VerbType, m.SessionID, true
	case *api.Clear:
		return policy.VerbType, m.SessionID, true
	case *api.SizePolicy:
		return policy.VerbType, m.SessionID, true
	case *api.Interrupt:
		return policy.VerbType, m.SessionID, true
	case *api.Signal:
		return policy.VerbTerminate, m.SessionID, true
	case *api.Limit:
		return policy.VerbTerminate, m.SessionID, true
	case *api.Freeze:
		return policy.VerbTerminate, m.SessionID, true
	case *api.Terminate:
		return policy.VerbTerminate, m.SessionID, true
	case *api.Forget:
		return policy.VerbTerminate, m.SessionID, true
	}
	return "", "", false
}

// attachVerb is what a viewer of a mode may do.
func attachVerb(mode protocol.Mode) policy.Verb {
	if mode == protocol.ModeReadOnly {
		return policy.VerbRead
	}
	return policy.VerbType
}
