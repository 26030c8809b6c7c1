package web

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"holdfast/protocol"
	"holdfast/proxy/internal/apiserver"
)

// A guard decides whether a request on one listener may be handled at all.
//
// A page of any site can make its browser connect to the loopback interface. Such a browser names
// the site in Origin. If the site has pointed a host name of its own to 127.0.0.1 (DNS
// rebinding), the browser names that host in Host. Therefore both headers must be in lists.
type guard struct {
	trusted bool
	ofGate  bool            // the gate has any number of names, and only its own page may send an Origin
	hosts   map[string]bool // host and port in lower case, as in all three lists
	origins map[string]bool
}

// newGuard returns the guard of a listener at addr, or an error if the configuration may not be
// served on that listener.
func newGuard(cfg *Config, addr net.Addr) (*guard, error) {
	tcp, isTCP := addr.(*net.TCPAddr)
	switch {
	case cfg.Trusted && isTCP:
		return nil, fmt.Errorf("%v: a listener on TCP must not trust its peers", addr)
	case cfg.Trusted:
		return &guard{trusted: true}, nil
	case !isTCP:
		return nil, fmt.Errorf("%v: a listener whose peers are not trusted must be on TCP", addr)
	case !tcp.IP.IsLoopback():
		return nil, fmt.Errorf("%v: a TCP listener must be on the loopback interface", addr)
	}
	g := &guard{hosts: make(map[string]bool), origins: make(map[string]bool)}
	for _, host := range append(ownHosts(tcp), cfg.Hosts...) {
		host = strings.ToLower(host)
		g.hosts[host] = true
		g.origins["http://"+host] = true
	}
	for _, origin := range cfg.Origins {
		g.origins[strings.ToLower(origin)] = true
	}
	return g, nil
}

func ownHosts(addr *net.TCPAddr) []string {
	var hosts []string
	for _, name := range []string{addr.IP.String(), "localhost", "127.0.0.1", "::1"} {
		host := net.JoinHostPort(name, strconv.Itoa(addr.Port))
		hosts = append(hosts, host)
		if addr.Port == 80 {
			hosts = append(hosts, strings.TrimSuffix(host, ":80")) // browsers leave out the default port
		}
	}
	return hosts
}

// check returns a refusal unless the Host, the Origin and the query of a request are allowed.
func (g *guard) check(r *request) error {
	for name := range r.query {
		switch strings.ToLower(name) {
		case "token", "access_token", "secret":
			// URLs end up in logs and histories. The refusal makes the author of the client
			// notice that.
			return forbid(http.StatusBadRequest, protocol.CodeInvalidArgument, "a token must not stand in a URL: send it in hello, or use a ticket")
		}
	}
	if g.trusted {
		return nil
	}
	if g.ofGate {
		return checkGate(r)
	}
	if !g.hosts[strings.ToLower(r.Host)] {
		return forbid(http.StatusForbidden, protocol.CodePermissionDenied, "this Host is not allowed")
	}
	if origin, ok := r.Header["Origin"]; ok && (len(origin) != 1 || !g.origins[strings.ToLower(origin[0])]) {
		return forbid(http.StatusForbidden, protocol.CodePermissionDenied, "this Origin is not allowed")
	}
	return nil
}

// checkGate returns a refusal unless a request to a gate may be handled. The Host must consist of the characters
// of an address, because it becomes a part of the Content-Security-Policy. If another site has pointed a name
// of its own to the gate, the browser has no cookie for that name.
func checkGate(r *request) error {
	isOdd := func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]", c)
	}
	if r.Host == "" || strings.ContainsFunc(r.Host, isOdd) {
		return forbid(http.StatusForbidden, protocol.CodePermissionDenied, "this Host is not allowed")
	}
	if _, ok := r.Header["Origin"]; ok && !ownOrigin(r) {
		return forbid(http.StatusForbidden, protocol.CodePermissionDenied, "this Origin is not allowed")
	}
	return nil
}

// origin returns the identity of a client that requests the api (session is "") or a session's
// raw WebSocket, or a refusal if the request has an invalid ticket.
//
// A client that needs a ticket and shows none is not trusted; it may still send a token in hello.
// A trusted client may show a ticket too, because the ticket names the principal of the
// connection. If the page's own WebSocket shows no ticket, its cookie names the principal.
func (h *Handler) origin(r *request, session protocol.SessionID) (apiserver.Origin, error) {
	from := apiserver.Origin{Transport: apiserver.TransportWeb, PID: peerPID(r.nc)}
	from.Trusted = h.cfg.Trusted && (session == "" || !h.cfg.Tickets)
	ticket, ok := r.query["ticket"]
	if !ok {
		if p := h.pagePass(r); h.cfg.Page && session == "" && p != nil && ownOrigin(r) {
			from.Trusted, from.Cookie, from.Principal = true, true, p.Principal
		}
		return from, nil
	}
	if len(ticket) == 1 {
		from.Principal, ok = h.cfg.Server.Redeem(ticket[0], session)
	}
	if len(ticket) != 1 || !ok {
		return from, forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "the ticket is used up, too old, or for another session: get a new one")
	}
	from.Trusted = true
	r.markKnown()
	return from, nil
}
