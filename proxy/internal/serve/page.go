package serve

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/term"

	"holdfast/proxy/internal/pass"
	"holdfast/shared/config"
)

// PageURL returns the address of the page at which a ticket signs a browser in.
func PageURL(address, ticket string) string { return "http://" + address + "/?ticket=" + ticket }

// OpenFile returns the path of the file that leads a browser to the page with the ticket. The name
// does not reveal the ticket. The proxy removes the file when the ticket is used.
func OpenFile(dirs config.Dirs, ticket string) string {
	return filepath.Join(dirs.Runtime, "open-"+pass.Name(ticket)+".html")
}

// greet prints the link to the page on a terminal. The link is a secret while it is valid, so it
// must not be written to a log; standard output that is no terminal may be a log.
func (s *serving) greet(out *os.File) {
	if s.listeners.tcp == nil || !term.IsTerminal(int(out.Fd())) {
		return
	}
	address := s.listeners.tcp.Addr().String()
	ticket, err := s.server.StartTicket()
	if err != nil {
		s.log.Warn().Err(err).Msg("link to the page not printed")
		return
	}
	fmt.Fprintf(out, "web page    %s\n            valid once, for 10 minutes; proxy web prints another\n", PageURL(address, ticket))
}
