package apiserver

import (
	"context"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/policy"
)

const (
	ticketLife  = 30 * time.Second
	startedLife = 10 * time.Minute // of one that a person is to read and use
	maxTickets  = 1024
	// maxOwnTickets is how many of them are out of one principal of a policy: eight
	// that ask for all they can get leave none to others.
	maxOwnTickets = 128
)

// tickets are good for one connection each. They let a page open a WebSocket
// without the token standing in a URL.
type tickets struct {
	mu     sync.Mutex
	issued map[string]ticket
	held   chan struct{}   // not nil while none is issued; closed then
	spent  map[string]bool // used up while none is issued
}

type ticket struct {
	session   protocol.SessionID // "" is any
	principal *policy.Principal  // whose it is; nil where no policy was asked
	expires   time.Time
}

// issue returns a new ticket of 256 bits, and until when it is good.
func (t *tickets) issue(session protocol.SessionID, principal *policy.Principal, now time.Time, life time.Duration) (string, time.Time, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := 0
	for k, v := range t.issued {
		if now.After(v.expires) {
			delete(t.issued, k)
		} else if isSamePrincipal(v.principal, principal) {
			own++
		}
	}
	if len(t.issued) >= maxTickets || principal != nil && own >= maxOwnTickets {
		return "", time.Time{}, protocol.Errorf(protocol.CodeLimitExceeded, "too many tickets are out: each is good for a while, or until it is used")
	}
	if t.issued == nil {
		t.issued = make(map[string]ticket)
	}
	token := protocol.NewToken(32)
	t.issued[token] = ticket{session, principal, now.Add(life)}
	return token, now.Add(life), nil
}

// isSamePrincipal compares what a policy tells clients apart by.
func isSamePrincipal(a, b *policy.Principal) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.User == b.User && a.Workspace == b.Workspace && a.All == b.All
}

// StartTicket returns a ticket for who has started the proxy, and sees it on a
// terminal: it is good for the page, and longer than others.
func (s *Server) StartTicket() (string, error) {
	token, _, err := s.tickets.issue("", nil, time.Now(), startedLife)
	return token, err
}

// redeem uses up a ticket and says whose it was, and whether it was good for the
// session; "" is the api itself.
func (t *tickets) redeem(token string, session protocol.SessionID, now time.Time) (*policy.Principal, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	got, ok := t.issued[token]
	delete(t.issued, token)
	if t.spent != nil && ok {
		t.spent[token] = true
	}
	if !ok || now.After(got.expires) || got.session != "" && got.session != session {
		return nil, false
	}
	return got.principal, true
}

// A TicketRecord is a ticket that goes to another proxy.
type TicketRecord struct {
	Ticket  string             `json:"ticket"`
	Session protocol.SessionID `json:"session_id,omitempty"`
	Expires time.Time          `json:"expires"`
	// Principal is whose it is, where a policy was asked.
	Principal *policy.Principal `json:"principal,omitempty"`
}

// Tickets are those that are out.
func (s *Server) Tickets() []TicketRecord {
	t := &s.tickets
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []TicketRecord
	for k, v := range t.issued {
		all = append(all, TicketRecord{k, v.session, v.expires, v.principal})
	}
	return all
}

// AddTickets makes another proxy's tickets good here, but for those that were
// used up here.
func (s *Server) AddTickets(all []TicketRecord) {
	t := &s.tickets
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.issued == nil {
		t.issued = make(map[string]ticket)
	}
	for _, r := range all[:min(len(all), maxTickets)] {
		if !t.spent[r.Ticket] {
			t.issued[r.Ticket] = ticket{r.Session, r.Principal, r.Expires}
		}
	}
}

// HoldTickets is for a proxy that others still connect past: what it issued would
// not be known there. Clients that ask for a ticket wait until IssueTickets.
func (s *Server) HoldTickets() {
	s.tickets.mu.Lock()
	defer s.tickets.mu.Unlock()
	s.tickets.held, s.tickets.spent = make(chan struct{}), make(map[string]bool)
}

// IssueTickets ends that.
func (s *Server) IssueTickets() {
	s.tickets.mu.Lock()
	defer s.tickets.mu.Unlock()
	if s.tickets.held != nil {
		close(s.tickets.held)
	}
	s.tickets.held, s.tickets.spent = nil, nil
}

// wait returns when tickets may be issued.
func (t *tickets) wait(ctx context.Context) error {
	t.mu.Lock()
	held := t.held
	t.mu.Unlock()
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Redeem uses up a ticket; session is "" for the api's WebSocket. The principal
// belongs into the connection's Origin.
func (s *Server) Redeem(token string, session protocol.SessionID) (*policy.Principal, bool) {
	return s.tickets.redeem(token, session, time.Now())
}
