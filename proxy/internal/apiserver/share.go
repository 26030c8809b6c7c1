package apiserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/internal/pass"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
)

// A share link lets every person with the link view one instance of one session until the link
// expires. The policy treats a viewer by link as the creator of the link, so the
// viewer sees no more than that user may see; and the code below restricts the viewer to the one
// session.
//
// The proxy stores no links, because a link is a signed pass. A link ends only if it expires, if
// the token is changed (this ends all links), or if its session ends. A viewer that is connected when
// the next proxy has another token is refused by that proxy; see checkPassKey.

// The default and the longest lifetime of a share link.
const (
	shareLife    = time.Hour
	maxShareLife = 30 * 24 * time.Hour
)

// A Share is the restriction of a client that presented a share link.
type Share struct {
	Session  protocol.SessionID `json:"session_id"`
	Instance protocol.Instance  `json:"instance"`
	Expires  time.Time          `json:"expires"`
}

// share creates a share link. The client that asks for it must have the permission to read the
// session.
func (c *caller) share(ctx context.Context, m *api.Share) (protocol.Message, error) {
	info, err := c.find(ctx, m.SessionID)
	if err != nil {
		return nil, err
	}
	if err := c.authorize(ctx, policy.Access{Verb: policy.VerbRead, SessionID: string(info.ID), Labels: info.Labels}); err != nil {
		return nil, err
	}
	if m.TTLMS < 0 || m.TTLMS > maxShareLife.Milliseconds() {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "the time of a share link must be at most %v", maxShareLife)
	}
	if c.s.cfg.Web == "" {
		return nil, protocol.Errorf(protocol.CodeUnsupported, "this proxy serves no web page: run proxy web, which makes it serve one, or set web in the settings (HOLDFAST_WEB) and then run proxy --handoff")
	}
	if c.s.cfg.NoPage {
		return nil, protocol.Errorf(protocol.CodeUnsupported, "the proxy was built without the web page, which shows a shared session: in its sources run scripts/web, which needs Node and npm, then go build, then proxy --handoff; a release has the page built in")
	}
	until := time.Now().Add(cmp.Or(time.Duration(m.TTLMS)*time.Millisecond, shareLife)).UTC()
	key, err := c.s.passes.Seal(pass.Pass{
		Kind: pass.Share, Session: info.ID, Instance: info.Instance, Principal: c.recordedPrincipal(), Expires: until,
	})
	if err != nil {
		return nil, err
	}
	c.log.Info().Str(logging.Session, string(info.ID)).Time("until", until).Msg("session shared")
	return api.Shared{Request: m.Request, URL: "http://" + c.s.cfg.Web + "/share?key=" + key, ExpiresAt: until}, nil
}

// permits returns an error if the client may not send a message of this type at all. A client with a
// share link may only send the messages that the table of requests marks.
func (c *caller) permits(m protocol.Message) error {
	if c.from.Share == nil {
		return nil
	}
	kind, _ := api.Messages.Request(m.MessageType())
	isPermitted := kind.IsForShares
	switch m := m.(type) {
	case *api.Attach:
		if m.Mode != protocol.ModeReadOnly || m.Steal || m.Typed || len(m.Env) > 0 {
			return protocol.Errorf(protocol.CodePermissionDenied, "a share link is read-only: attach with mode read_only, without steal, typed and env")
		}
	case *api.Screen:
		isPermitted = isPermitted && m.At == nil // the link was made to show the session from then on
	case *api.Scrollback:
		isPermitted = isPermitted && !m.Past
	case *api.Resize:
		isPermitted = isPermitted && m.Attachment != nil // the size of a read-only attachment changes no other viewer's size
	}
	if !isPermitted {
		return protocol.Errorf(protocol.CodePermissionDenied, "a share link is read-only: it does not permit this request")
	}
	return nil
}

// canSeeAll reports whether the client can see every session.
func (c *caller) canSeeAll() bool { return c.from.Principal.All && c.from.Share == nil }

// sharedClient is the name by which other viewers see a viewer by share link. The name in its hello
// is not shown, because the viewer could choose any name to deceive them.
const sharedClient = "share link"

// sharedWriter returns a writer for a viewer by share link that no other viewer can have. Without
// this, a viewer by link could name the writer of another viewer and take that viewer's place.
func sharedWriter(w string) string {
	switch {
	case w == "":
		return sharedPrefix + protocol.NewToken(8)
	case strings.HasPrefix(w, sharedPrefix): // the client resumes with the writer that it has received
		return w
	}
	sum := sha256.Sum256([]byte(w))
	return sharedPrefix + hex.EncodeToString(sum[:12])
}

const sharedPrefix = "share-"

// clientView returns a session as the client may see it: with the command that was requested. A
// client with a share link does not see other viewers, nor the fields that are meant for the user's
// own programs.
func (c *caller) clientView(i protocol.SessionInfo) protocol.SessionInfo {
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

// watchExpiry closes the connection when its share link expires. It checks the wall clock every
// minute, because timers do not run while the machine sleeps.
func (c *conn) watchExpiry() {
	s := c.from.Share
	if s == nil {
		return
	}
	c.wg.Go(func() {
		for left := time.Until(s.Expires); left > 0; left = time.Until(s.Expires) {
			select {
			case <-time.After(min(left, time.Minute)):
			case <-c.life.reached(phaseStopping): // the next proxy watches the expiry as well
				return
			case <-c.ctx.Done():
				return
			}
		}
		c.closeWith(api.Error{Error: *protocol.Errorf(protocol.CodeUnauthorized, "the share link has expired: ask for a new one")})
	})
}
