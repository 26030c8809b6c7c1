// Package record contains the messages that hosts and gates exchange on the bus.
//
// A host publishes a Host every 10 s, a Change for each change of a session, and all sessions as a
// sequence of Pieces if a gate asks for them. Every one of these messages has a Stamp. A gate
// publishes a Dial if a client wants to enter the host. Gates tell each other a Sum of their Members
// every 10 s, and the Members if the sums differ.
//
// Invariant: only a host itself publishes records about it, and it publishes them in the order of their
// stamps. For any bytes, Decode allocates no more than a small multiple of their number, and its result
// is within the limits.
//
// Not here: a gate's use of the records (package directory), and their transport (package bus).
package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/policy"
	"holdfast/shared/plain"
)

// Times of the records of hosts.
const (
	Every = 10 * time.Second // a host publishes its Host this often
	Late  = 30 * time.Second // a host without a Host for this time is unreachable
)

// Limits of a record.
const (
	MaxSession  = 32 << 10  // bytes of a session in a Change or a Piece
	minSession  = 32        // bytes of a session in a Piece; the fields that each session has are longer
	MaxPiece    = 512 << 10 // bytes of the sessions of a Piece
	MaxPieces   = 4096
	MaxSessions = 65_536    // sessions of a host, as many as a supervisor may have
	MaxMessage  = 640 << 10 // bytes of a message on the bus
	maxCommand  = 256       // bytes of the command in a Session
	maxText     = 256       // bytes of a release, and of a system
	maxCPUs     = 1 << 16
)

// The kinds of messages. A kind is the last word of a subject on the bus.
const (
	KindHost   = "host"   // a Host, from the host
	KindChange = "change" // a Change, from the host
	KindPiece  = "piece"  // a Piece, from the host
	KindLeave  = "leave"  // the host leaves the gates
	KindLost   = "lost"   // a Lost, about the host, from the gate that it was connected to

	KindHello  = "hello"  // to a host: a gate asks for the record of the host
	KindRoster = "roster" // to a host: a gate asks for all sessions
	KindDial   = "dial"   // to a host: a Dial
	KindGates  = "gates"  // to a host: Gates

	KindSum     = "sum"     // between gates: a MemberSum
	KindMembers = "members" // between gates: Members
	KindRecall  = "recall"  // from a gate to the one before it: close all connections and end
)

// A Stamp orders the messages of a host. Epoch counts the starts of the process that publishes, and is
// kept on disk. Seq counts its messages from 1. Of two messages, the one with the older stamp loses.
type Stamp struct {
	Epoch uint64 `json:"epoch"`
	Seq   uint64 `json:"seq"`
}

// Before reports whether s is older than t.
func (s Stamp) Before(t Stamp) bool { return s.Epoch < t.Epoch || s.Epoch == t.Epoch && s.Seq < t.Seq }

// Host describes a host, and its roster by the number and the Sum of its sessions.
type Host struct {
	Stamp
	Link      uint64            `json:"link"` // number of times that this epoch of the host has connected to a gate
	Release   string            `json:"release"`
	System    string            `json:"system"`
	Labels    map[string]string `json:"labels,omitempty"`
	IsServing bool              `json:"serving"`        // a proxy runs on the host
	CPUs      int               `json:"cpus,omitempty"` // number of processors that the host may use
	Count     int               `json:"count"`
	Sum       string            `json:"sum"`
	// IsUnlisted tells that this epoch of the host has not listed its sessions yet. Count and Sum then tell nothing, and
	// the host does not send its roster.
	IsUnlisted bool `json:"unlisted,omitempty"`
}

// Change tells the state of a session, or its end if Session is absent. A session that has ended with an
// exit record still exists; it ceases to exist when the record is deleted.
type Change struct {
	Stamp
	ID      protocol.SessionID `json:"id"`
	Session json.RawMessage    `json:"session,omitempty"`
}

// Piece is a part of a host's roster. The pieces of a roster have consecutive stamps.
type Piece struct {
	Stamp
	Index    int      `json:"index"` // from 0
	Total    int      `json:"total"`
	Sessions Sessions `json:"sessions"`
}

// Sessions are encoded sessions.
type Sessions []json.RawMessage

// UnmarshalJSON implements json.Unmarshaler. It refuses sessions of less than minSession bytes, because many of them would
// need much more time and memory than their bytes suggest.
func (s *Sessions) UnmarshalJSON(data []byte) error {
	*s = nil
	d := json.NewDecoder(bytes.NewReader(data))
	if first, err := d.Token(); err != nil || first == nil { // null stands for no sessions
		return err
	} else if first != json.Delim('[') {
		return fmt.Errorf("the sessions begin with %v", first)
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if len(raw) < minSession {
			return fmt.Errorf("a session has %d bytes, and at least %d are necessary", len(raw), minSession)
		}
		*s = append(*s, raw)
	}
	return nil
}

// Lost tells that the connection of a host to a gate has ended, and those before it.
type Lost struct {
	Epoch uint64 `json:"epoch"`
	Link  uint64 `json:"link"` // of the last Host that came over the connection
}

// IsAfter reports whether m has come over a later connection than l tells of.
func (m Host) IsAfter(l Lost) bool { return m.Epoch > l.Epoch || m.Epoch == l.Epoch && m.Link > l.Link }

// Dial tells a host that a client waits at a gate.
type Dial struct {
	Ticket string `json:"ticket"`
	Gate   string `json:"gate,omitempty"`  // address of the gate, or "" if the host is connected to it
	Start  bool   `json:"start,omitempty"` // start a proxy and a supervisor if none runs
	Again  bool   `json:"again,omitempty"` // do not start a proxy that a user has stopped
	Agent  bool   `json:"agent,omitempty"` // the client asks for the agent, and not for the proxy
	// Principal is the client, if the gate has a policy. The agent of the host vouches for it.
	Principal *protocol.Principal `json:"principal,omitempty"`
}

// Gates tells a host the addresses of all gates.
type Gates struct {
	Addresses []string `json:"addresses"`
}

// Session is a session as the directory knows it.
type Session struct {
	ID        protocol.SessionID `json:"id"`
	Instance  protocol.Instance  `json:"instance"`
	State     protocol.State     `json:"state"`
	Size      protocol.Size      `json:"size"`
	Title     string             `json:"title,omitempty"`
	Command   string             `json:"command"`
	Labels    map[string]string  `json:"labels,omitempty"`
	CreatedAt time.Time          `json:"created_at"`
	ExitCode  *int               `json:"exit_code,omitempty"`
}

// Of returns the encoding of the fields of a session that the directory has. If the session does not fit into
// MaxSession bytes, its title and all labels but that of its workspace are left out.
func Of(s protocol.SessionInfo) json.RawMessage {
	r := Session{
		ID: s.ID, Instance: s.Instance, State: s.State, Size: s.Size, Title: s.Title,
		Command: plain.Cut(strings.Join(s.Argv, " "), maxCommand), Labels: s.Labels, CreatedAt: s.CreatedAt, ExitCode: s.ExitCode,
	}
	b := encode(r)
	if len(b) > MaxSession {
		workspace, has := s.Labels[protocol.LabelWorkspace]
		r.Labels, r.Title = nil, ""
		if has { // without it, the session would become visible to the clients of no workspace
			r.Labels = map[string]string{protocol.LabelWorkspace: plain.Cut(workspace, policy.MaxNameBytes+1)} // a longer one is no workspace
		}
		b = encode(r)
	}
	return b
}

// A Message is sent over the bus.
type Message interface {
	Host | Change | Piece | Lost | Dial | Gates | MemberSum | Members
}

// Encode returns the bytes of a message.
func Encode[T Message](m T) []byte { return encode(m) }

func encode(v any) []byte {
	b, _ := protocol.Marshal(v) // structs of strings, numbers, times and valid JSON can always be encoded; an escape for HTML would make a session exceed its limit
	return b
}

// Decode decodes a message, and checks its limits.
func Decode[T Message](data []byte) (m T, err error) {
	if len(data) > MaxMessage {
		return m, fmt.Errorf("a message has %d bytes, and at most %d are allowed", len(data), MaxMessage)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("the message is not valid: %w", err)
	}
	return m, check(&m)
}

func check(m any) error {
	switch m := m.(type) {
	case *Host:
		m.Release, m.System = plain.Cut(m.Release, maxText), plain.Cut(m.System, maxText)
		if m.Count < 0 || m.Count > MaxSessions || len(m.Sum) != hex.EncodedLen(len(Sum{})) {
			return fmt.Errorf("a host has %d sessions and a sum of %d digits", m.Count, len(m.Sum))
		}
		m.CPUs = min(max(m.CPUs, 0), maxCPUs)
		return checkLabels(m.Labels)
	case *Change:
		if len(m.Session) == 0 || string(m.Session) == "null" {
			m.Session = nil
			return m.ID.Validate()
		}
		s, err := ParseSession(m.Session)
		if err == nil && s.ID != m.ID {
			err = fmt.Errorf("the change of session %.64q describes session %.64q", m.ID, s.ID)
		}
		return err
	case *Piece:
		if m.Total < 1 || m.Total > MaxPieces || m.Index < 0 || m.Index >= m.Total {
			return fmt.Errorf("piece %d of %d does not exist", m.Index, m.Total)
		}
	case *Dial:
		if b, err := hex.DecodeString(m.Ticket); err != nil || len(b) != sha256.Size {
			return fmt.Errorf("the ticket has not %d bytes", sha256.Size)
		}
		if m.Gate != "" && !gate.ValidAddress(m.Gate) {
			return fmt.Errorf("%.80q is no address of a gate", m.Gate)
		}
		if m.Principal != nil {
			return policy.Principal(*m.Principal).Validate()
		}
	case *Gates:
		return m.Check()
	case *MemberSum:
		if !gate.ValidAddress(m.From) {
			return fmt.Errorf("%.80q is no address of a gate", m.From)
		}
	case *Members:
		return m.check()
	}
	return nil
}

// Check returns an error if there are too many addresses, or one is not valid.
func (m Gates) Check() error {
	if len(m.Addresses) > gate.MaxGates {
		return fmt.Errorf("there are %d gates, and at most %d are allowed", len(m.Addresses), gate.MaxGates)
	}
	for _, a := range m.Addresses {
		if !gate.ValidAddress(a) {
			return fmt.Errorf("%.80q is no address of a gate", a)
		}
	}
	return nil
}

// checkLabels returns an error if labels exceed the limits of the labels of a session.
func checkLabels(labels map[string]string) error {
	total := 0
	for k, v := range labels {
		total += len(k) + len(v)
	}
	if len(labels) > protocol.MaxLabels || total > protocol.MaxLabelBytes {
		return fmt.Errorf("there are %d labels of %d bytes", len(labels), total)
	}
	return nil
}

// ParseSession decodes a session of a Change or Piece, and checks its limits.
func ParseSession(raw json.RawMessage) (Session, error) {
	var s Session
	if len(raw) > MaxSession {
		return s, fmt.Errorf("a session has %d bytes, and at most %d are allowed", len(raw), MaxSession)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("the session is not valid: %w", err)
	}
	s.Size = s.Size.Normalize()
	s.Command, s.Title = plain.Cut(s.Command, maxCommand), plain.Cut(s.Title, protocol.MaxTitle)
	s.Instance, s.State = protocol.Instance(plain.Cut(string(s.Instance), protocol.MaxIDLen)), protocol.State(plain.Cut(string(s.State), protocol.MaxIDLen))
	if err := checkLabels(s.Labels); err != nil {
		return s, err
	}
	return s, s.ID.Validate()
}

// A Sum is a hash of a set of sessions. It does not depend on their order, so it can be kept up to date
// by one Toggle for each change. The sessions of a host are unique by their ids.
//
// The hash is of the bytes that the host has encoded, so that a gate of another release, which may not
// know a field, computes the same sum.
type Sum [sha256.Size]byte

// Toggle adds the session to the set, or removes it if the set contains it.
func (s *Sum) Toggle(of Sum) {
	for i := range s {
		s[i] ^= of[i]
	}
}

// SumOf returns the sum of one session.
func SumOf(raw json.RawMessage) Sum { return sha256.Sum256(raw) }

// String returns the sum in hexadecimal digits.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }
