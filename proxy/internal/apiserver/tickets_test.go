package apiserver

import (
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/policy"
	"holdfast/shared/testkit"
)

// A ticket is valid once, for a limited time, and for the session for which it was issued.
func TestTickets(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		name     string
		issued   protocol.SessionID
		redeemed protocol.SessionID
		after    time.Duration
		want     bool
	}{
		{name: "the api", want: true},
		{name: "the session of the ticket", issued: "s", redeemed: "s", want: true},
		{name: "any, for a session", redeemed: "s", want: true},
		{name: "another session", issued: "s", redeemed: "t"},
		{name: "a session's, for the api", issued: "s"},
		{name: "in time", after: ticketLife, want: true},
		{name: "too late", after: ticketLife + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var ts tickets
			token, expires, err := ts.issue(tt.issued, nil, now, ticketLife)
			if err != nil || len(token) != 64 || !expires.Equal(now.Add(ticketLife)) {
				t.Fatalf("issued %q until %v, %v", token, expires, err)
			}
			if good(ts.redeem(token[1:]+"x", tt.redeemed, now)) || good(ts.redeem("", tt.redeemed, now)) {
				t.Error("a ticket that was not issued was accepted")
			}
			if got := good(ts.redeem(token, tt.redeemed, now.Add(tt.after))); got != tt.want {
				t.Errorf("the ticket was accepted: %v", got)
			}
			if good(ts.redeem(token, tt.issued, now)) {
				t.Error("the ticket was accepted twice")
			}
		})
	}
}

// The number of tickets is limited. Expired tickets make room.
func TestTicketsLimit(t *testing.T) {
	var ts tickets
	now := time.Unix(1000, 0)
	for range maxTickets {
		if _, _, err := ts.issue("", nil, now, ticketLife); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := ts.issue("", nil, now.Add(ticketLife), ticketLife); protocol.CodeOf(err) != protocol.CodeLimitExceeded {
		t.Errorf("a ticket above the limit: %v", err)
	}
	if _, _, err := ts.issue("", nil, now.Add(ticketLife+1), ticketLife); err != nil {
		t.Errorf("after the others have expired: %v", err)
	}
	if len(ts.issued) != 1 {
		t.Errorf("%d tickets are held", len(ts.issued))
	}
	// The tickets of one user do not take the room of other users.
	now = now.Add(time.Hour)
	bob, ann := &policy.Principal{User: "bob", Workspace: "w"}, &policy.Principal{User: "ann", Workspace: "w"}
	for range maxOwnTickets {
		again := *bob
		if _, _, err := ts.issue("", &again, now, ticketLife); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := ts.issue("", bob, now, ticketLife); protocol.CodeOf(err) != protocol.CodeLimitExceeded {
		t.Errorf("a ticket above the limit of bob: %v", err)
	}
	for _, who := range []*policy.Principal{ann, nil} {
		if _, _, err := ts.issue("", who, now, ticketLife); err != nil {
			t.Errorf("%v, beside bob's tickets: %v", who, err)
		}
	}
}

func TestTicketRequest(t *testing.T) {
	w := newWorld(t, nil)
	c := w.client()
	c.send(api.Ticket{Request: req("t"), SessionID: "s"})
	m := expect[*api.TicketIssued](c)
	if left := time.Until(m.ExpiresAt); m.RequestID != "t" || left <= 0 || left > ticketLife {
		t.Errorf("received %+v", m)
	}
	if !good(w.server.Redeem(m.Ticket, "s")) || good(w.server.Redeem(m.Ticket, "s")) {
		t.Error("the ticket is not valid exactly once")
	}
}

// While a proxy takes over it issues no tickets. Tickets that it receives several times are valid once.
func TestTicketsOfAnotherProxy(t *testing.T) {
	old, s := New(Config{}), newWorld(t, nil)
	one, _, err := old.tickets.issue("s", nil, time.Now(), ticketLife)
	testkit.Must(t, err)
	s.server.HoldTickets()
	c := s.client()
	c.send(api.Ticket{Request: req("t")})
	s.server.AddTickets(old.Tickets())
	if !good(s.server.Redeem(one, "s")) {
		t.Error("the ticket of the old proxy is not valid")
	}
	two, _, err := old.tickets.issue("", nil, time.Now(), ticketLife)
	testkit.Must(t, err)
	s.server.AddTickets(old.Tickets())
	if good(s.server.Redeem(one, "s")) {
		t.Error("the ticket is valid twice")
	}
	c.ping() // the request for a ticket waits, and delays no other request
	s.server.IssueTickets()
	if m := expect[*api.TicketIssued](c); m.RequestID != "t" || !good(s.server.Redeem(m.Ticket, "")) || !good(s.server.Redeem(two, "")) {
		t.Errorf("received %+v", m)
	}
}

func good(_ *policy.Principal, ok bool) bool { return ok }
