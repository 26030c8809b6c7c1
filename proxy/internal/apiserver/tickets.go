package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/policy"
)

const (
	ticketLife  = 30 * time.Second
	startedLife = 10 * time.Minute // for a ticket that the user reads on a terminal
	maxTickets  = 1024
	// maxOwnTickets bounds the valid tickets of one principal of a policy, so that it takes eight
	// principals to use all tickets.
	maxOwnTickets = 128
)

// tickets holds the valid tickets. A ticket is valid for one connection. A page uses it to open a
// WebSocket, so that the token need not be part of a URL.
type tickets struct {
	mu     sync.Mutex
	issued map[string]ticket
	held   chan struct{}   // not nil while no ticket may be issued; closed by IssueTickets
	spent  map[string]bool // tickets that were redeemed while held is not nil
}

type ticket struct {
	session   protocol.SessionID // "" permits any session
	principal *policy.Principal  // the principal that asked for the ticket; nil if no policy was asked
	expires   time.Time
}

// issue returns a new ticket of 256 bits and its expiry. It fails if there are too many valid
// tickets.
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
		return "", time.Time{}, protocol.Errorf(protocol.CodeLimitExceeded, "too many unused tickets: use one, or wait until one expires")
	}
	if t.issued == nil {
		t.issued = make(map[string]ticket)
	}
	token := protocol.NewToken(32)
	t.issued[token] = ticket{session, principal, now.Add(life)}
	return token, now.Add(life), nil
}

// isSamePrincipal reports whether a policy would treat both principals alike.
func isSamePrincipal(a, b *policy.Principal) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.User == b.User && a.Workspace == b.Workspace && a.All == b.All
}

// StartTicket returns a ticket that the proxy prints on the terminal at its start. It permits the
// page, and it is valid longer than other tickets.
func (s *Server) StartTicket() (string, error) {
	token, _, err := s.tickets.issue("", nil, time.Now(), startedLife)
	return token, err
}

// redeem invalidates a ticket. It returns the ticket's principal, and whether the ticket was valid
// for session; session "" stands for the api's WebSocket.
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

// A TicketBox issues the tickets that sign browsers in at a gate, which has no Server.
type TicketBox struct{ tickets tickets }

// Issue returns a ticket that is valid once, for 30 s. The error is limit_exceeded.
func (b *TicketBox) Issue() (string, error) {
	ticket, _, err := b.tickets.issue("", nil, time.Now(), ticketLife)
	return ticket, err
}

// Redeem invalidates a ticket, and reports whether it was valid.
func (b *TicketBox) Redeem(ticket string) bool {
	_, ok := b.tickets.redeem(ticket, "", time.Now())
	return ok
}

// Take returns the tickets that have been issued and not redeemed, for Add of another process, and invalidates them here,
// because each must be accepted once. It returns nil if there are none.
func (b *TicketBox) Take() []byte {
	t := &b.tickets
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.encodeLocked()
	clear(t.issued)
	return all
}

// Add adds tickets that Take has returned.
func (b *TicketBox) Add(taken []byte) error {
	if err := b.tickets.add(taken); err != nil {
		return fmt.Errorf("the tickets of the old gate: %w", err)
	}
	return nil
}

// A ticketRecord is a ticket that is sent to the next proxy or gate.
type ticketRecord struct {
	Ticket  string             `json:"ticket"`
	Session protocol.SessionID `json:"session_id,omitempty"`
	Expires time.Time          `json:"expires"`
	// Principal is the principal that asked for the ticket, or nil if no policy was asked.
	Principal *policy.Principal `json:"principal,omitempty"`
}

// Tickets returns the tickets that have been issued and not redeemed, for AddTickets of the next proxy. It returns nil if
// there are none.
func (s *Server) Tickets() []byte {
	t := &s.tickets
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.encodeLocked()
}

// AddTickets adds the tickets of another proxy, except those that have been redeemed here already.
func (s *Server) AddTickets(all []byte) error {
	if err := s.tickets.add(all); err != nil {
		return fmt.Errorf("the old proxy's tickets: %w", err)
	}
	return nil
}

// encodeLocked returns the tickets that have been issued and not redeemed, or nil if there are none. mu is held.
func (t *tickets) encodeLocked() []byte {
	var all []ticketRecord
	for k, v := range t.issued {
		all = append(all, ticketRecord{k, v.session, v.expires, v.principal})
	}
	if len(all) == 0 {
		return nil
	}
	b, _ := json.Marshal(all) // cannot fail for strings and times
	return b
}

// add adds tickets that encodeLocked has returned, except those that have been redeemed here already.
func (t *tickets) add(encoded []byte) error {
	if len(encoded) == 0 {
		return nil
	}
	var all []ticketRecord
	if err := json.Unmarshal(encoded, &all); err != nil {
		return err
	}
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
	return nil
}

// HoldTickets makes requests for a ticket wait until IssueTickets. During a handoff clients may
// still connect to the other proxy, which would not know a ticket that this proxy issues.
func (s *Server) HoldTickets() {
	s.tickets.mu.Lock()
	defer s.tickets.mu.Unlock()
	s.tickets.held, s.tickets.spent = make(chan struct{}), make(map[string]bool)
}

// IssueTickets permits tickets again after HoldTickets.
func (s *Server) IssueTickets() {
	s.tickets.mu.Lock()
	defer s.tickets.mu.Unlock()
	if s.tickets.held != nil {
		close(s.tickets.held)
	}
	s.tickets.held, s.tickets.spent = nil, nil
}

// wait returns when tickets may be issued, or when ctx is done.
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

// Redeem invalidates a ticket. session is "" for the api's WebSocket. The caller must store the
// principal in the connection's Origin.
func (s *Server) Redeem(token string, session protocol.SessionID) (*policy.Principal, bool) {
	return s.tickets.redeem(token, session, time.Now())
}
