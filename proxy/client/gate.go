package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
)

// GateOptions name the gates of a host. ParseGate makes them from the text that
// "proxy gate client-token" prints.
type GateOptions struct {
	Addresses   []string // HOST:PORT of each gate; a client tries them in a random order until one serves it
	Fingerprint string   // SHA-256 of the certificate of all gates in hexadecimal digits
	Token       string   // token of clients; "" for a gate whose policy knows UserToken
	UserToken   string   // for the policy of the gate; Dial takes Options.Token if it is ""
	Host        string   // name of the host; Hosts and AllSessions ignore it
	Start       bool     // start a proxy and a supervisor on the host if none runs
	// Attaches tells that the client will attach at once. Dial then opens the connection of the first attachment
	// beside its own, because each takes several round trips to the gate and to the host.
	Attaches bool
}

// ParseGate returns the options in the text that "proxy gate client-token" prints.
func ParseGate(text string) (GateOptions, error) {
	e, err := gate.ParseEntry(gate.ForClients, text)
	return GateOptions{Addresses: e.Addresses, Fingerprint: e.Fingerprint, Token: e.Secret}, err
}

// ErrUnknownHost tells that no host of this name has joined the gate.
var ErrUnknownHost = errors.New("unknown host")

const (
	// gateAnswer is how long a gate may take for an answer. It gives a host 10 s to arrive.
	gateAnswer = 20 * time.Second
	// gatePauseMin and gatePauseMax are how long a dial waits after a dial that failed, so that the
	// clients of a gate that returns do not all occupy it.
	gatePauseMin = 20 * time.Millisecond
	gatePauseMax = time.Second
)

// A gateDialer enters a host through a gate, for each connection.
type gateDialer struct {
	o GateOptions

	mu       sync.Mutex
	hasBegun bool // a connection has succeeded, so that the host's user may have stopped the proxy since
	pause    time.Duration
}

func newGateDialer(o GateOptions) (*gateDialer, error) {
	if !gate.ValidHost(o.Host) {
		return nil, fmt.Errorf("%.80q is no name of a host of a gate", o.Host)
	}
	return &gateDialer{o: o}, nil
}

// dial returns a connection with the proxy of the host.
func (d *gateDialer) dial(ctx context.Context) (net.Conn, error) {
	d.mu.Lock()
	wait, isLater := d.pause, d.hasBegun
	d.mu.Unlock()
	if err := pause(ctx, wait); err != nil {
		return nil, err
	}
	conn, err := d.enter(ctx, isLater)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.pause = min(max(2*d.pause, gatePauseMin), gatePauseMax)
		return nil, err
	}
	d.pause, d.hasBegun = 0, true
	return conn, nil
}

func (d *gateDialer) enter(ctx context.Context, isLater bool) (conn net.Conn, err error) {
	err = reachGate(ctx, d.o, isLater, func(c net.Conn) error {
		conn = c
		_, err := askGate[*gate.Entered](ctx, c, gate.Enter{Token: d.o.Token, UserToken: d.o.UserToken, Host: d.o.Host, Start: d.o.Start && !isLater, Again: isLater})
		return err
	})
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// reachGate connects with one gate after the other, in a random order, until use returns nil. use returns
// errors of askGate. If the client was connected before (isLater), the host exists, so only the answers of
// all gates together can prove that it does not exist any more.
func reachGate(ctx context.Context, o GateOptions, isLater bool, use func(net.Conn) error) error {
	addresses := slices.Clone(o.Addresses)
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	errs := gate.Reach(ctx, addresses, o.Fingerprint, gateAnswer, func(conn net.Conn, _ string) error { return use(conn) })
	if len(errs) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var answers, failures, passing []error
	for _, err := range errs {
		var refused *gate.Refused
		switch {
		case !errors.As(err, &refused):
			failures = append(failures, err)
		case refused.Code == gate.RefusedUnreachable || refused.Code == gate.RefusedBusy:
			passing = append(passing, err)
		default:
			answers = append(answers, err)
		}
	}
	switch {
	case len(passing) > 0:
		return gateError(passing[0])
	case len(answers) == 0 || isLater && len(failures) > 0:
		return gateError(gate.JoinErrors(failures))
	}
	return gateError(answers[0])
}

// askGate sends a request to a gate and returns the answer. If ctx ends, it closes the connection.
func askGate[T protocol.Message](ctx context.Context, conn net.Conn, m protocol.Message) (answer T, err error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if !stop() {
			err = ctx.Err()
		}
	}()
	_ = conn.SetDeadline(time.Now().Add(gateAnswer)) // if it fails, the next call fails, too
	if err := gate.Write(conn, m); err != nil {
		return answer, fmt.Errorf("gate: %w", err)
	}
	got, err := gate.Read(conn, gate.MaxAnswer)
	if err != nil {
		return answer, fmt.Errorf("gate: %w", err)
	}
	answer, ok := got.(T)
	if !ok {
		return answer, failed(ErrDecode, fmt.Errorf("the gate answers %s with %s", m.MessageType(), got.MessageType()))
	}
	return answer, conn.SetDeadline(time.Time{})
}

// gateError returns the error of a client for an error of gate.Reach. The errors that a further try
// would meet again are *protocol.Error, or match ErrUnknownHost.
func gateError(err error) error {
	var refused *gate.Refused
	switch {
	case errors.Is(err, gate.ErrFingerprint): // another server; a further try would meet it again
		return protocol.Errorf(protocol.CodeUnauthorized, "%v: it is not the gate that was meant, or it has a new certificate", err)
	case !errors.As(err, &refused):
		return err
	case refused.Code == gate.RefusedUnauthorized:
		return protocol.Errorf(protocol.CodeUnauthorized, "%s", refused.Message)
	case refused.Code == gate.RefusedDenied:
		return protocol.Errorf(protocol.CodePermissionDenied, "%s", refused.Message)
	case refused.Code == gate.RefusedInvalid:
		return protocol.Errorf(protocol.CodeInvalidArgument, "%s", refused.Message)
	case refused.Code == gate.RefusedUnknownHost:
		return fmt.Errorf("%w: %s", ErrUnknownHost, refused.Message)
	}
	return fmt.Errorf("gate: %s", refused.Message)
}

// spareLimit is how long the connection of the first attachment waits for it.
const spareLimit = 10 * time.Second

// A spare is the connection of the first attachment, which is opened before the attachment.
type spare struct {
	ctx   context.Context
	end   context.CancelFunc
	ready chan *conn
}

// openSpare begins to open a connection.
func openSpare(o *Options) *spare {
	s := &spare{ready: make(chan *conn)}
	s.ctx, s.end = context.WithTimeout(context.Background(), spareLimit)
	go func() {
		defer s.end()
		conn, err := dial(s.ctx, o)
		if err != nil {
			return // the attachment opens a connection, and tells the error of that
		}
		select {
		case s.ready <- conn:
		case <-s.ctx.Done():
			_ = conn.Close() // nobody has used it
		}
	}()
	return s
}

// take returns the connection, or nil if it is not there or was taken before.
func (s *spare) take(ctx context.Context) *conn {
	if s == nil {
		return nil
	}
	select {
	case conn := <-s.ready:
		return conn
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
	return nil
}

// Hosts returns all hosts that have joined the gates, sorted by name.
func Hosts(ctx context.Context, o GateOptions) ([]gate.HostInfo, error) {
	return readPages(ctx, o, 0, func(after string) protocol.Message {
		return gate.Hosts{Token: o.Token, UserToken: o.UserToken, After: after}
	}, func(page *gate.HostList) ([]gate.HostInfo, string) { return page.Hosts, page.Next })
}

// A GateFilter selects sessions of all hosts of a gate. Its zero value selects all.
type GateFilter struct {
	ID     protocol.SessionID // sessions with this id
	Host   string             // sessions of this host
	State  protocol.State     // sessions in this state, which may be gate.StateUnknown
	Labels map[string]string  // sessions that have all of these labels with these values
	// Command selects sessions with this text in their command, as the gate lists it.
	Command string
	// Limit is the greatest number of sessions that AllSessions returns; 0 means all.
	Limit int
}

// AllSessions returns the sessions of all hosts of the gates that f selects, sorted by host and id, as one of
// the gates knows them.
func AllSessions(ctx context.Context, o GateOptions, f GateFilter) ([]gate.SessionRow, error) {
	return readPages(ctx, o, f.Limit, func(after string) protocol.Message {
		return gate.Sessions{Token: o.Token, UserToken: o.UserToken, ID: f.ID, Host: f.Host, State: string(f.State), Labels: f.Labels, Command: f.Command, After: after}
	}, func(page *gate.SessionList) ([]gate.SessionRow, string) { return page.Sessions, page.Next })
}

// readPages returns the rows of all pages of a list of one gate, or the first limit of them if limit is not 0. request makes
// the request for the page behind a row, and rows takes the rows out of a page, and the last of them if another page follows.
func readPages[P protocol.Message, R any](ctx context.Context, o GateOptions, limit int, request func(after string) protocol.Message, rows func(P) ([]R, string)) (all []R, err error) {
	err = reachGate(ctx, o, false, func(conn net.Conn) error {
		all = nil
		for after := ""; ; {
			page, err := askGate[P](ctx, conn, request(after))
			if err != nil {
				return err
			}
			some, next := rows(page)
			if all = append(all, some...); limit > 0 && len(all) >= limit {
				all, next = all[:limit], ""
			}
			if after = next; after == "" {
				_ = conn.Close() // all has been read
				return nil
			}
		}
	})
	if err != nil {
		return nil, failed(ErrConnect, err)
	}
	return all, nil
}
