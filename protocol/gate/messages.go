// Package gate contains the messages between a gate and the clients and hosts that connect to it, and
// the way in which both connect: TLS, with a certificate that is known by its fingerprint.
//
// The first frame of a connection tells its purpose. A client asks for the directory, or enters one
// host. A host joins, opens its way to the bus, or arrives with the ticket of a client. A new gate asks for
// the identity of the gates, and a gate opens its way to the bus of another one. After Entered, and after
// Arrive, the connection carries the frames of the api between client and host, or a request to the agent of
// the host (Run, Upgrade) and its answers. The gate copies them. Of the frames of the api it reads only the
// lengths, except those of read-only viewers, and may add goaway between two frames to the client.
//
// Invariant: no function of this package reads a byte beyond the frame that it returns, so that the
// bytes after a frame belong to the next reader. A frame of a peer that has not proved its right to
// connect has at most MaxFirst bytes.
//
// Not here: the messages on the bus (package proxy/internal/fleet/record), and the api.
package gate

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/frame"
)

// Limits of the messages.
const (
	MaxFirst   = frame.MaxHello // bytes of a frame that a client or host sends to a gate
	MaxAnswer  = frame.Max      // bytes of a frame that a gate sends
	MaxRows    = 10_000         // hosts or sessions in one answer
	MaxHost    = 64             // characters of a host's name
	MaxPage    = 512 << 10      // bytes of the rows in one answer
	TokenBytes = 32             // random bytes of a token, a ticket, and a secret
	MaxGates   = 16             // gates for the same hosts
	MaxAddress = 300            // bytes of the address of a gate

	MaxArgs     = 32       // arguments of Run
	MaxArgBytes = 8 << 10  // bytes of all arguments of Run
	MaxPrinted  = 32 << 10 // bytes of output in one Printed
)

// Subprotocol is the WebSocket subprotocol with which clients connect to a gate. A text message is the payload of
// a control frame. A binary message is the kind and the payload of another frame.
const Subprotocol = "holdfast.gate.v1"

// StateUnknown is the state of a session whose host cannot be reached, or whose proxy does not run. The
// session may live or may have ended.
const StateUnknown protocol.State = "unknown"

// Messages contains all messages between a gate and its peers.
var Messages = protocol.NewRegistry(func() []protocol.RequestKind { return requests }, Refused{}, Printed{})

// requests contains one row for each message that begins a conversation, or a part of one.
var requests = []protocol.RequestKind{
	{Message: Enter{}, Reply: Entered{}, Repeat: protocol.RepeatSet},
	{Message: Hosts{}, Reply: HostList{}, Repeat: protocol.RepeatRead},
	{Message: Sessions{}, Reply: SessionList{}, Repeat: protocol.RepeatRead},
	{Message: Join{}, Reply: Joined{}, Repeat: protocol.RepeatSet},
	{Message: Bus{}, Reply: Challenge{}, Repeat: protocol.RepeatSet},
	{Message: Peer{}, Reply: Challenge{}, Repeat: protocol.RepeatSet},
	{Message: Proof{}, Reply: Accepted{}, Repeat: protocol.RepeatNever},
	{Message: Enlist{}, Reply: Identity{}, Repeat: protocol.RepeatNever},
	{Message: Arrive{}, Repeat: protocol.RepeatNever},
	{Message: Run{}, Reply: Ended{}, Repeat: protocol.RepeatNever},
	{Message: Upgrade{}, Reply: Upgraded{}, Repeat: protocol.RepeatSet},
	{Message: UpgradeStep{}, Repeat: protocol.RepeatNever},
}

// A Refusal tells why a gate refuses a request.
type Refusal string

// The refusals.
const (
	RefusedUnauthorized Refusal = "unauthorized"      // the token, key or signature is wrong, or was revoked
	RefusedDenied       Refusal = "permission_denied" // the policy of the gate forbids the request
	RefusedUnknownHost  Refusal = "unknown_host"      // no host of this name has joined the gate
	RefusedUnreachable  Refusal = "host_unreachable"  // the host has joined, but cannot be reached now
	RefusedNameTaken    Refusal = "name_taken"        // a host with another key has this name
	RefusedBusy         Refusal = "busy"              // a limit of the gate is reached
	RefusedInvalid      Refusal = "invalid"           // the request is not valid
)

// Refusals returns all refusals.
func Refusals() []Refusal {
	return []Refusal{RefusedUnauthorized, RefusedDenied, RefusedUnknownHost, RefusedUnreachable, RefusedNameTaken, RefusedBusy, RefusedInvalid}
}

// Refused is the reply to a request that failed. The gate closes the connection after it.
type Refused struct {
	Code    Refusal `json:"code"`
	Message string  `json:"message"`
}

// Error implements error.
func (r *Refused) Error() string { return r.Message }

// Enter asks for a connection with the proxy of a host. After the reply, the connection is one of the
// api, and begins with hello. If Agent is set, it is one with the agent of the host instead.
type Enter struct {
	Token     string `json:"token"`                // of clients; "" if the client has none, which only a gate with a policy accepts
	UserToken string `json:"user_token,omitempty"` // for the policy of the gate
	Host      string `json:"host"`
	Start     bool   `json:"start,omitempty"` // start a proxy and a supervisor on the host if none runs
	Again     bool   `json:"again,omitempty"` // the client was connected before: do not start a proxy that a user has stopped
	// Agent asks for a connection with the agent of the host, for which the host needs no proxy. The client
	// then sends Run or Upgrade. Start and Again have no meaning. If the gate has a policy, the client must be
	// one who sees all workspaces.
	Agent bool `json:"agent,omitempty"`
}

// Entered is the reply to Enter. The host's proxy, or its agent, can be reached.
type Entered struct{}

// Hosts asks for the hosts that have joined, sorted by name.
type Hosts struct {
	Token     string `json:"token"`                // of clients; "" if the client has none, which only a gate with a policy accepts
	UserToken string `json:"user_token,omitempty"` // for the policy of the gate
	After     string `json:"after,omitempty"`      // the name after which the list begins
}

// HostList is the reply to Hosts.
type HostList struct {
	Hosts []HostInfo `json:"hosts"`
	Next  string     `json:"next,omitempty"` // set if more hosts follow: the value of After for the next request
}

// HostInfo describes a host.
type HostInfo struct {
	Name        string            `json:"name"`
	IsReachable bool              `json:"reachable"`         // the host is connected to a gate
	IsServing   bool              `json:"serving"`           // a proxy runs on the host
	Release     string            `json:"release,omitempty"` // release of Holdfast on the host
	System      string            `json:"system,omitempty"`  // operating system and processor of the host
	Labels      map[string]string `json:"labels,omitempty"`
	Sessions    int               `json:"sessions"`         // number of sessions that the gate knows
	Running     int               `json:"running"`          // number of those that run
	CPUs        int               `json:"cpus,omitempty"`   // number of processors that the host may use; 0 if it is unknown
	SeenAt      time.Time         `json:"seen_at,omitzero"` // when the gate last heard from the host
	Gate        string            `json:"gate,omitempty"`   // address of the gate to which the host is connected
}

// A HostState is one word for the state of a host.
type HostState string

// The states of a host.
const (
	HostReady       HostState = "ready"       // a proxy runs there
	HostIdle        HostState = "idle"        // no proxy runs there, and no session unless a user has stopped the proxy
	HostUnreachable HostState = "unreachable" // the host is not connected to a gate
)

// State returns the state of the host.
func (h HostInfo) State() HostState {
	switch {
	case !h.IsReachable:
		return HostUnreachable
	case !h.IsServing:
		return HostIdle
	}
	return HostReady
}

// Sessions asks for sessions of all hosts, sorted by host and id. Each field that is set restricts the
// list.
type Sessions struct {
	Token     string             `json:"token"`                // of clients; "" if the client has none, which only a gate with a policy accepts
	UserToken string             `json:"user_token,omitempty"` // for the policy of the gate
	ID        protocol.SessionID `json:"id,omitempty"`
	Host      string             `json:"host,omitempty"`
	State     string             `json:"state,omitempty"`
	Labels    map[string]string  `json:"labels,omitempty"`
	// Command selects sessions with this text in SessionRow.Command.
	Command string `json:"command,omitempty"`
	After   string `json:"after,omitempty"` // HOST/ID after which the list begins
}

// SessionList is the reply to Sessions.
type SessionList struct {
	Sessions []SessionRow `json:"sessions"`
	Next     string       `json:"next,omitempty"` // set if more sessions follow: the value of After for the next request
}

// SessionRow describes a session of a host.
type SessionRow struct {
	Host      string             `json:"host"`
	ID        protocol.SessionID `json:"id"`
	Instance  protocol.Instance  `json:"instance"`
	State     string             `json:"state"` // a State, or unknown
	Cols      int                `json:"cols"`
	Rows      int                `json:"rows"`
	Title     string             `json:"title,omitempty"`
	Command   string             `json:"command"` // argv in one line, cut
	Labels    map[string]string  `json:"labels,omitempty"`
	CreatedAt time.Time          `json:"created_at"`
	ExitCode  *int               `json:"exit_code,omitempty"`
}

// Join makes a host known to the gate. A host that has received no reply may send it again.
type Join struct {
	Secret string `json:"secret"` // of a join token that no other host has used
	Name   string `json:"name"`
	Key    string `json:"key"` // public NKey of the host, of the kind user
}

// Joined is the reply to Join.
type Joined struct{}

// Bus asks for the connection over which a host publishes its records and receives the gate's requests.
type Bus struct {
	Key string `json:"key"`
}

// Peer asks for the connection over which a gate receives the records of the hosts of another gate, and
// exchanges messages with these hosts and that gate.
type Peer struct {
	Address string `json:"address"` // of the gate that asks
}

// Challenge is the reply to Bus and to Peer.
type Challenge struct {
	Nonce string `json:"nonce"`
}

// Proof shows that the host has the seed of its key, or that the gate has the key of the certificate of all
// gates.
type Proof struct {
	Signature []byte `json:"signature"` // of SignedText
}

// SignedText returns the text that a host signs after Bus, or a gate after Peer. It names the request and
// the certificate, so that a signature is of no use for another request or other gates.
func SignedText(request protocol.Message, fingerprint, nonce string) []byte {
	return []byte("holdfast " + request.MessageType() + "\n" + fingerprint + "\n" + nonce)
}

// Accepted is the reply to Proof. After it the connection carries the protocol of NATS, with the key as
// the name of the user, or "gate" for a gate.
type Accepted struct {
	Password string   `json:"password"`        // valid for this connection alone
	Gates    []string `json:"gates,omitempty"` // addresses of all gates
	// Epoch is the last epoch of the host that the gate knows. The host must begin a later one, because the gate ignores
	// records of earlier epochs.
	Epoch uint64 `json:"epoch,omitempty"`
}

// Enlist asks for the identity of the gates, with which a new gate becomes one of them.
type Enlist struct {
	Secret string `json:"secret"` // of a token for gates that was not used before
}

// Identity is the reply to Enlist: all that makes a program a gate of the same hosts and clients.
type Identity struct {
	Certificate string   `json:"certificate"` // certificate and its key in PEM
	Token       string   `json:"token"`       // the token of clients
	Gates       []string `json:"gates"`       // addresses of the gates
}

// Run asks a host to run one of HostCommands there. The host sends Printed for the output of the command,
// and Ended or Refused at last. The command continues if the connection ends.
type Run struct {
	Args []string `json:"args"` // the command and its arguments, without the name of the program
}

// Printed has output of a command, in the order in which the command has written it to each of the two.
type Printed struct {
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
}

// Ended is the reply to Run. The command has ended, and all its output was sent.
type Ended struct {
	Code int `json:"code"` // exit code, or 1 if a signal has ended the command
}

// HostCommands returns the names of the commands that a host runs for clients of a gate. Each of them acts on
// the programs of the host.
func HostCommands() []string {
	return []string{"stop", "status", "handoff", "upgrade", "doctor", "service"}
}

// Check returns an error if no host runs the command: if it is none of HostCommands, if it has an argument
// that names another directory, proxy or host, if it would not end, or if it exceeds a limit. It must not start programs from a
// directory that the client names either, because only Upgrade asks whether the owner of the host permits that.
func (r *Run) Check() error {
	if len(r.Args) == 0 || !slices.Contains(HostCommands(), r.Args[0]) {
		return fmt.Errorf("a client of a gate can run only these commands on a host: %s", strings.Join(HostCommands(), ", "))
	}
	size := 0
	for _, arg := range r.Args {
		size += len(arg)
		flag, _, _ := strings.Cut(arg, "=")
		if slices.Contains([]string{"--dir", "--proxy", "--on", "--foreground", "--from-dir"}, flag) {
			return fmt.Errorf("%s cannot be used for a host of the gate", flag)
		}
	}
	if len(r.Args) > MaxArgs || size > MaxArgBytes {
		return fmt.Errorf("the command has more than %d arguments, or more than %d bytes", MaxArgs, MaxArgBytes)
	}
	return nil
}

// Arrive connects a host with the client that asked for it. After it the connection is one of the api, or of
// a command.
// If Reason is set, the client is refused.
type Arrive struct {
	Ticket string `json:"ticket"`
	Reason string `json:"reason,omitempty"` // why the host cannot serve the client
}

// An UpgradeAction tells what the agent of a host does with the programs in a directory.
type UpgradeAction string

// The actions.
const (
	UpgradeCheck  UpgradeAction = "check"  // compares them with the programs that run, and changes nothing
	UpgradeTry    UpgradeAction = "try"    // starts them as a trial, and changes nothing
	UpgradeApply  UpgradeAction = "apply"  // replaces the programs that run by them
	UpgradeReturn UpgradeAction = "return" // replaces the programs that run by those before the apply with the same ID
)

// UpgradeActions returns all actions.
func UpgradeActions() []UpgradeAction {
	return []UpgradeAction{UpgradeCheck, UpgradeTry, UpgradeApply, UpgradeReturn}
}

// Upgrade asks the agent of a host to replace the programs of the host. The agent sends any number of
// UpgradeStep, and then Upgraded. It continues if the connection ends. If the same request arrives again,
// the agent does not begin again: it answers when the work is done. The agent refuses the request if the
// owner of the host has not permitted the directory or the URL. CheckArchive tells which URLs are valid.
type Upgrade struct {
	ID         string        `json:"id"` // of the rollout, chosen by the client: 1 to MaxRollout of a-z, A-Z, 0-9, "_", "-" and "."
	Action     UpgradeAction `json:"action"`
	From       string        `json:"from"`                   // absolute path of a directory of the host with the programs, or the URL of a release archive
	SHA256     string        `json:"sha256,omitempty"`       // of the archive, in hexadecimal; "" for a directory
	LimitMS    int64         `json:"limit_ms"`               // how long the programs may take until they serve, in milliseconds
	MaxStallMS float64       `json:"max_stall_ms,omitempty"` // longest pause of the host's clients in milliseconds; 0 means any
}

// Limits of an upgrade.
const (
	MaxRollout      = 64   // characters of the ID of a rollout
	MaxUpgradeText  = 1024 // bytes of an UpgradeStep, and of an error
	MaxUpgradeLimit = time.Hour
)

// UpgradeStep is a step of an upgrade, for people.
type UpgradeStep struct {
	Text string `json:"text"`
}

// An UpgradeState tells the result of an Upgrade.
type UpgradeState string

// The states.
const (
	UpgradeReady    UpgradeState = "ready"    // other programs run, and these can replace them
	UpgradeCurrent  UpgradeState = "current"  // these programs run already
	UpgradeIdle     UpgradeState = "idle"     // no proxy runs on the host
	UpgradeDone     UpgradeState = "upgraded" // these programs run, and the host is healthy
	UpgradeReturned UpgradeState = "returned" // the programs from before run
	UpgradeFailed   UpgradeState = "failed"   // the work has failed; Supervisor and Proxy tell what runs, if it is known
)

// Upgraded is the reply to Upgrade.
type Upgraded struct {
	State      UpgradeState `json:"state"`
	Supervisor string       `json:"supervisor,omitempty"` // release of the supervisor that runs now
	Proxy      string       `json:"proxy,omitempty"`      // release of the proxy that runs now
	Target     string       `json:"target,omitempty"`     // release of the proxy in the directory
	Sum        string       `json:"sum,omitempty"`        // SHA-256 of both programs in the directory
	Sessions   int          `json:"sessions,omitempty"`   // number of sessions that are the same as before
	Clients    int          `json:"clients,omitempty"`    // number of connections that the new proxy has taken over
	Closed     int          `json:"closed,omitempty"`     // number of connections that were asked to reconnect
	StallMS    float64      `json:"stall_ms,omitempty"`   // longest pause of a client in milliseconds
	Error      string       `json:"error,omitempty"`      // why the state is returned or failed
}

// MessageType implements protocol.Message.
func (Refused) MessageType() string     { return "refused" }
func (Enter) MessageType() string       { return "enter" }
func (Entered) MessageType() string     { return "entered" }
func (Hosts) MessageType() string       { return "hosts" }
func (HostList) MessageType() string    { return "host_list" }
func (Sessions) MessageType() string    { return "sessions" }
func (SessionList) MessageType() string { return "session_list" }
func (Join) MessageType() string        { return "join" }
func (Joined) MessageType() string      { return "joined" }
func (Bus) MessageType() string         { return "bus" }
func (Challenge) MessageType() string   { return "challenge" }
func (Proof) MessageType() string       { return "proof" }
func (Accepted) MessageType() string    { return "accepted" }
func (Arrive) MessageType() string      { return "arrive" }
func (Run) MessageType() string         { return "run" }
func (Printed) MessageType() string     { return "printed" }
func (Ended) MessageType() string       { return "ended" }
func (Peer) MessageType() string        { return "peer" }
func (Enlist) MessageType() string      { return "enlist" }
func (Identity) MessageType() string    { return "identity" }
func (Upgrade) MessageType() string     { return "upgrade" }
func (UpgradeStep) MessageType() string { return "upgrade_step" }
func (Upgraded) MessageType() string    { return "upgraded" }

// Write writes a message as one frame.
func Write(w io.Writer, m protocol.Message) error {
	b, err := protocol.Encode(m)
	if err != nil {
		return err
	}
	if len(b)+1 > MaxAnswer {
		return protocol.Errorf(protocol.CodeFrameTooLarge, "%s has %d bytes, and at most %d are allowed", m.MessageType(), len(b), MaxAnswer)
	}
	_, err = w.Write(frame.Append(make([]byte, 0, frame.HeaderLen+len(b)), frame.Control, b))
	return err
}

// Read reads one frame of at most limit bytes and returns its message. If the message is Refused, Read
// returns it as the error.
func Read(r io.Reader, limit int) (protocol.Message, error) {
	raw, err := ReadFrame(r, limit)
	if err != nil {
		return nil, err
	}
	if frame.Kind(raw[frame.HeaderLen-1]) != frame.Control {
		return nil, protocol.Errorf(protocol.CodeBadFrame, "the frame is not a control message")
	}
	m, _, err := Messages.Decode(raw[frame.HeaderLen:])
	if err != nil {
		return nil, err
	}
	if refused, ok := m.(*Refused); ok {
		return nil, refused
	}
	return m, nil
}

// Ask writes a message and returns the answer, which must be a T. If the answer is Refused, the error
// matches it.
func Ask[T protocol.Message](conn io.ReadWriter, m protocol.Message) (answer T, err error) {
	if err := Write(conn, m); err != nil {
		return answer, fmt.Errorf("the gate does not answer: %w", err)
	}
	got, err := Read(conn, MaxAnswer)
	if err != nil {
		return answer, fmt.Errorf("the gate answers: %w", err)
	}
	answer, ok := got.(T)
	if !ok {
		return answer, fmt.Errorf("the gate answers %s with %s", m.MessageType(), got.MessageType())
	}
	return answer, nil
}

// ReadFrame reads one frame of at most limit bytes and returns it with its header.
func ReadFrame(r io.Reader, limit int) ([]byte, error) {
	var length [frame.HeaderLen - 1]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n == 0 || uint64(n) > uint64(limit) {
		return nil, protocol.Errorf(protocol.CodeFrameTooLarge, "a frame has %d bytes, and 1 to %d are allowed", n, limit)
	}
	// io.CopyN grows the buffer with the bytes that arrive, and not with the length that a peer announces.
	raw := &growing{b: append(make([]byte, 0, 512), length[:]...)}
	if _, err := io.CopyN(raw, r, int64(n)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return raw.b, nil
}

// growing is a buffer without the method ReadFrom, with which io.CopyN would read ahead.
type growing struct{ b []byte }

func (g *growing) Write(p []byte) (int, error) {
	g.b = append(g.b, p...)
	return len(p), nil
}
