package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
)

// maxPolicyText bounds the text of a policy's refusal that the client receives, in bytes.
const maxPolicyText = 1 << 10

// identify returns the principal of a client, or refuses the connection. Without a policy, the client must have the
// token of clients, and the principal is nil. With a policy, the token stands for the user that runs the gate, and the
// policy derives the principal from that token, the client's own token, or both.
func (g *Gate) identify(conn net.Conn, token, userToken string) (principal *protocol.Principal, isClient bool) {
	hasToken := g.hasClientToken(conn, token)
	switch {
	case g.o.Policy == nil && hasToken:
		return nil, true
	case !hasToken && (g.o.Policy == nil || userToken == ""):
		err := policy.Refuse(policy.CodeUnauthorized, "the token of the client is wrong; proxy gate client-token prints the right one on the gate")
		g.refuseByPolicy(conn, policy.Event{}, err)
		return nil, false
	}
	shown := policy.Credentials{Token: userToken, Transport: policy.TransportGate, UID: -1}
	if hasToken {
		shown.UID = max(0, os.Getuid()) // Getuid returns -1 on Windows
	}
	p, err := g.o.Policy.Authenticate(g.ctx, shown)
	if err != nil {
		g.refuseByPolicy(conn, policy.Event{}, err)
		return nil, false
	}
	principal = (*protocol.Principal)(&p)
	g.observe(policy.Event{Kind: policy.EventHello, Principal: p})
	return principal, true
}

// hasClientToken reports whether a token is the one of clients. mu is held for the comparison and the mark,
// so that renewClientToken misses no connection with the token before.
func (g *Gate) hasClientToken(conn net.Conn, token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	isRight := g.store.IsClient(token)
	if isRight && !g.isClosed {
		g.conns[base(conn)] = ofClient
	}
	return isRight
}

// mayAsk reports whether a client may ask for the directory, and refuses the connection otherwise.
func (g *Gate) mayAsk(conn net.Conn, principal *protocol.Principal) bool {
	err := g.authorize(principal, policy.VerbList)
	if err != nil {
		g.refuseByPolicy(conn, policy.Event{Principal: policy.Principal(*principal), Verb: policy.VerbList}, err)
	}
	return err == nil
}

// mayStart reports whether a client may start a proxy, which it may if it may start sessions.
func (g *Gate) mayStart(principal *protocol.Principal) bool {
	err := g.authorize(principal, policy.VerbSpawn)
	if err != nil {
		g.logDenied(policy.Event{Principal: policy.Principal(*principal), Verb: policy.VerbSpawn}, err)
	}
	return err == nil
}

// authorize asks the policy whether a client may do something in its workspace.
func (g *Gate) authorize(principal *protocol.Principal, verb policy.Verb) error {
	if g.o.Policy == nil || principal == nil {
		return nil
	}
	a := policy.Access{Principal: policy.Principal(*principal), Verb: verb}
	if !principal.All {
		a.Labels = map[string]string{}
		for label, value := range map[string]string{protocol.LabelWorkspace: principal.Workspace, protocol.LabelUser: principal.User} {
			if value != "" {
				a.Labels[label] = value
			}
		}
	}
	return g.o.Policy.Authorize(g.ctx, a)
}

// refuseByPolicy refuses a connection because of the policy's answer, or because it gave none.
func (g *Gate) refuseByPolicy(conn net.Conn, e policy.Event, err error) {
	e.Kind, e.Code = policy.EventRefused, string(protocol.CodePolicyUnavailable)
	code, why := gate.RefusedBusy, "the policy of the gate gave no answer, so the request is refused: try again"
	var no *policy.Refusal
	if errors.As(err, &no) {
		e.Code, why = no.Code, no.Message[:min(len(no.Message), maxPolicyText)]
		code = gate.RefusedUnauthorized
		if no.Code == policy.CodePermissionDenied {
			code = gate.RefusedDenied
		}
	}
	g.observe(e)
	g.refuse(conn, code, why)
}

// logDenied logs that a client was denied a part of its request, and tells the policy.
func (g *Gate) logDenied(e policy.Event, err error) {
	e.Kind, e.Code = policy.EventRefused, string(protocol.CodePolicyUnavailable)
	var no *policy.Refusal
	if errors.As(err, &no) {
		e.Code = no.Code
	}
	g.observe(e)
	g.refusals.Of(g.log).Warn().Bool(logging.Security, true).Str(logging.Code, e.Code).Str("verb", string(e.Verb)).Str("user", e.Principal.User).Msg("request refused")
}

// refuseHidden answers a client that names a host of another workspace as if there were none. Unlike a
// mistaken name this is a security event.
func (g *Gate) refuseHidden(conn net.Conn, principal *protocol.Principal, host string) {
	g.noteHidden(principal)
	g.refuse(conn, gate.RefusedUnknownHost, unknownHost(host))
}

// noteHidden notes that a client has named a host of another workspace.
func (g *Gate) noteHidden(principal *protocol.Principal) {
	g.logDenied(policy.Event{Principal: policy.Principal(*principal), Verb: policy.VerbList}, policy.Refuse(policy.CodePermissionDenied, ""))
}

func unknownHost(name string) string { return fmt.Sprintf("no host %.80q has joined the gate", name) }

// observe tells the policy of an event, which never waits.
func (g *Gate) observe(e policy.Event) {
	if g.o.Policy != nil {
		e.At = time.Now()
		_ = g.o.Policy.Observe(context.Background(), e) // its error has no consequence
	}
}
