package apiserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/internal/pass"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
)

// A share link lets whoever has it look at one life of one session, until it
// expires. It is whoever gave it as far as a policy is concerned, so that it shows
// no more than its giver may see, and of that it may only look at the one session.
//
// Nothing of a link is kept here: it is a signed pass. So the token's change ends
// all links, and the session's end each of its own; nothing else does.

// How long a link is good for.
const (
	shareLife    = time.Hour
	maxShareLife = 30 * 24 * time.Hour
)

// A Share is what a client that has a share link may look at.
type Share struct {
	Session  protocol.SessionID `json:"session_id"`
	Instance protocol.Instance  `json:"instance"`
	Expires  time.Time          `json:"expires"`
}

// share makes a link. Who asks for it must be able to look.
func (c *conn) share(ctx context.Context, m *api.Share) (protocol.Message, error) {
	info, err := c.find(ctx, m.SessionID)
	if err != nil {
		return nil, err
	}
	if err := c.may(ctx, policy.Access{Verb: policy.VerbRead, SessionID: string(info.ID), Labels: info.Labels}); err != nil {
		return nil, err
	}
	if m.TTLMS < 0 || m.TTLMS > maxShareLife.Milliseconds() {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("a link can be good for at most %v (ttl_ms from 0 to %d)", maxShareLife, maxShareLife.Milliseconds()))
	}
	if c.s.cfg.Web == "" {
		return nil, protocol.Errorf(protocol.CodeUnsupported, "this proxy serves no web page: it has no web address")
	}
	until := time.Now().Add(cmp.Or(time.Duration(m.TTLMS)*time.Millisecond, shareLife)).UTC()
	key, err := c.s.passes.Seal(pass.Pass{
		Kind: pass.Share, Session: info.ID, Instance: info.Instance, Principal: c.recorded(), Expires: until,
	})
	if err != nil {
		return nil, err
	}
	c.log.Info().Str(logging.Session, string(info.ID)).Time("until", until).Msg("session shared")
	return api.Shared{Request: m.Request, URL: "http://" + c.s.cfg.Web + "/share?key=" + key, ExpiresAt: until}, nil
}

// permits says whether the client may send a message at all. To who has a share
// link all is forbidden that is not named here.
func (c *conn) permits(m protocol.Message) error {
	if c.from.Share == nil {
		return nil
	}
	switch m := m.(type) {
	case *api.List, *api.Info, *api.Screen, *api.History, *api.Search, *api.Scrollback, *api.Events, *api.Detach:
		return nil
	case *api.Attach:
		if m.Mode == protocol.ModeReadOnly && !m.Steal && !m.Typed && len(m.Env) == 0 {
			return nil
		}
		return protocol.Errorf(protocol.CodePermissionDenied, "a share link is to look: attach with mode read_only, without steal, typed and env")
	case *api.Resize:
		if m.Attachment != nil { // its window, which nobody else's size depends on
			return nil
		}
	}
	return protocol.Errorf(protocol.CodePermissionDenied, "a share link is to look at its session, and for nothing else")
}

// seesAll reports whether every session is there for the client.
func (c *conn) seesAll() bool { return c.from.Principal.All && c.from.Share == nil }

// sharedClient is what other viewers are told of who looks by a link: the name that
// it gives itself is anybody's.
const sharedClient = "share link"

// sharedWriter gives who has a share link a writer that is nobody else's: whoever
// attaches as another viewer's takes its place.
func sharedWriter(w string) string {
	switch {
	case w == "":
		return sharedPrefix + protocol.NewToken(8)
	case strings.HasPrefix(w, sharedPrefix): // as it was told
		return w
	}
	sum := sha256.Sum256([]byte(w))
	return sharedPrefix + hex.EncodeToString(sum[:12])
}

const sharedPrefix = "share-"

// shown is a session as the client is told of it: as it was asked for. Who has a share
// link is not told of those beside it, nor what only its user's programs make of it.
func (c *conn) shown(i protocol.SessionInfo) protocol.SessionInfo {
	if asked := c.s.cfg.Asked; asked != nil {
		i.Argv = asked(i.Argv)
	}
	if c.from.Share == nil {
		return i
	}
	i.Argv = i.Argv[:min(len(i.Argv), 1)]
	i.PID, i.Originator, i.Cwd, i.Viewers, i.Left = 0, "", "", nil, nil
	labels := map[string]string{}
	for _, name := range []string{protocol.LabelTitle, protocol.LabelDescription} {
		if value, ok := i.Labels[name]; ok {
			labels[name] = value
		}
	}
	i.Labels = labels
	if i.Exit != nil {
		exit := *i.Exit
		exit.EndedBy, exit.EndedByUser, exit.Cwd, exit.Survivors = "", "", "", nil
		i.Exit = &exit
	}
	return i
}

// expires ends the connection when its share link does. The clock of the wall
// counts, also where the machine was asleep.
func (c *conn) expires() {
	s := c.from.Share
	if s == nil {
		return
	}
	c.wg.Go(func() {
		for left := time.Until(s.Expires); left > 0; left = time.Until(s.Expires) {
			select {
			case <-time.After(min(left, time.Minute)):
			case <-c.moving: // whoever goes on with it does this, too
				return
			case <-c.ctx.Done():
				return
			}
		}
		_ = c.t.SetWriteDeadline(time.Now().Add(goawayTimeout))
		c.send(api.Error{Error: *protocol.Errorf(protocol.CodeUnauthorized, "the share link has expired")})
		_ = c.t.Close()
	})
}
