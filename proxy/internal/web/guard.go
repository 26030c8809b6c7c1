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

// A guard knows who may ask on one listener.
//
// A page of any site can make its browser connect to the loopback interface.
// Its Origin tells on it, and where it has pointed a name of its own here (DNS
// rebinding), its Host does.
type guard struct {
	trusted bool
	hosts   map[string]bool // in lower case, as all that follows
	origins map[string]bool
}

// newGuard returns an error for a listener that must not be served so.
func newGuard(cfg *Config, addr net.Addr) (*guard, error) {
	tcp, isTCP := addr.(*net.TCPAddr)
	switch {
	case cfg.Trusted && isTCP:
		return nil, fmt.Errorf("%v: peers on TCP are never trusted", addr)
	case cfg.Trusted:
		return &guard{trusted: true}, nil
	case !isTCP:
		return nil, fmt.Errorf("%v: only TCP is served to peers that are not trusted", addr)
	case !tcp.IP.IsLoopback():
		return nil, fmt.Errorf("%v: TCP is served on the loopback interface alone", addr)
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
			hosts = append(hosts, strings.TrimSuffix(host, ":80")) // browsers leave it out
		}
	}
	return hosts
}

// check says whether a request may be looked at.
func (g *guard) check(r *request) error {
	for name := range r.query {
		switch strings.ToLower(name) {
		case "token", "access_token", "secret":
			// URLs end up in logs and histories; whoever does this shall notice.
			return forbid(http.StatusBadRequest, protocol.CodeInvalidArgument, "a token must not stand in a URL: send it in hello, or use a ticket")
		}
	}
	if g.trusted {
		return nil
	}
	if !g.hosts[strings.ToLower(r.Host)] {
		return forbid(http.StatusForbidden, protocol.CodePermissionDenied, "this Host is not allowed")
	}
	if origin, ok := r.Header["Origin"]; ok && (len(origin) != 1 || !g.origins[strings.ToLower(origin[0])]) {
		return forbid(http.StatusForbidden, protocol.CodePermissionDenied, "this Origin is not allowed")
	}
	return nil
}

// origin says what is known of a client that wants the api (session is "") or a
// session's raw WebSocket. One that needs a ticket and has none has not proved
// who it is, and may still show a token; a ticket that is no good is refused. One
// that is shown without need still says whose connection this is. Where there is no
// ticket, the page's own WebSocket is whose its cookie is.
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
		return from, forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "the ticket is used up, too old, or not for this")
	}
	from.Trusted = true
	return from, nil
}
