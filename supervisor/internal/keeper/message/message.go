// Package message is the protocol between a keeper and its supervisor: messages in JSON, each
// after its length, on a Unix socket that passes descriptors. A "record" of the protocol is a
// vault entry.
//
// Invariant: version 1 is frozen. Operations and fields may be added, and both sides must
// ignore those that they do not know. The meaning of an existing one must never change, because
// a keeper may be older or newer than its supervisor.
//
// Not here: the effect of a message (packages keeper and vault).
package message

import (
	"encoding/binary"
	"encoding/json"
)

// Environment variables of a process that the keeper or the supervisor starts. Each holds the
// number of a descriptor.
const (
	EnvSocket = "HOLDFAST_KEEPER"        // for a supervisor: the socket to the keeper
	EnvResume = "HOLDFAST_KEEPER_RESUME" // for a keeper: the manifest that it continues with
	EnvTrial  = "HOLDFAST_KEEPER_TRIAL"  // for a keeper on trial: a manifest that it must try to read
)

// ExitTried is the exit code of a keeper on trial that has read the manifest. No other program is
// likely to use it.
const ExitTried = 85

// An Entry is a vault entry: at most MaxMeta bytes and MaxFDs descriptors, which the keeper holds under an id. PID is the pid
// of a child, of which the keeper stores the exit status; 0 means that the pid is not known yet. A manifest has entries as JSON.
type Entry struct {
	ID   string `json:"-"`
	PID  int    `json:"pid,omitempty"`
	Meta []byte `json:"meta,omitempty"`
	FDs  []int  `json:"fds,omitempty"`
}

// OwnID is the id of the keeper's own vault entry. The entry has one file. The lock of the file
// means that the directory has a keeper. Each supervisor gets a duplicate and passes it on, so that the lock
// is free only when keeper and supervisor have both ended.
const OwnID = "keeper"

// Version is the version of the protocol and of the manifest. There will never be another one,
// because one keeper outlives many supervisors.
const Version = 1

// Limits of the memory and the descriptors that a supervisor can make the keeper hold. They are
// far above the need of as many terminals as Linux has (4,096), each with a few KiB of state
// and a few descriptors, twice.
const (
	MaxID        = 200      // bytes of UTF-8
	MaxMeta      = 64 << 10 // bytes
	MaxFDs       = 8        // of one vault entry
	MaxRecords   = 8192
	MaxMetaTotal = 64 << 20  // bytes, of all vault entries together
	MaxFrame     = 128 << 10 // bytes of JSON; MaxMeta in base64 has 86 KiB
)

// Operations that the supervisor requests. The keeper answers each one that has a seq by OpOK
// or OpError. An OpError without a seq concerns a frame that could not be decoded.
const (
	OpHello  = "hello"  // version
	OpPut    = "put"    // id, pid, meta, descriptors: add a vault entry, or replace the entry of that id
	OpPID    = "pid"    // id, pid: set the pid of an entry
	OpDelete = "delete" // id: delete an entry and the exit status of its pid
	OpReady  = "ready"  // argv: all sessions are restored and the supervisor serves; the keeper starts it again with argv, or as configured if argv is empty
	OpLeave  = "leave"  // this process will exec another program, which serves when it sends ready
	OpAlive  = "alive"  // the work before ready takes long, but makes progress
	OpExec   = "exec"   // argv, descriptor of a program: the keeper must exec that program
	OpQuit   = "quit"   // the keeper must end when this supervisor exits with code 0
)

// Operations that the keeper sends: one OpHello (version, records, starts, last, status); one
// OpRecord (id, pid, meta, descriptors) for each vault entry; one OpExit (pid, status) for each
// exit status that it holds; one OpEnd. After that it sends an OpExit whenever an orphan ends,
// and the answers. The keeper receives no message while it has one to send.
const (
	OpRecord = "record"
	OpExit   = "exit"
	OpEnd    = "end"
	OpOK     = "ok"    // seq
	OpError  = "error" // seq, message
)

// A Message is a message of either direction. It is sent as JSON after its length (4 bytes, big
// endian). A missing field is zero, and an unknown field is ignored.
type Message struct {
	Op      string   `json:"op"`
	Seq     uint64   `json:"seq,omitempty"`
	Version int      `json:"version,omitempty"`
	ID      string   `json:"id,omitempty"`
	PID     int      `json:"pid,omitempty"`  // 0: unknown
	Meta    []byte   `json:"meta,omitempty"` // base64
	FDs     int      `json:"fds,omitempty"`  // number of descriptors that are sent with the frame's first byte
	Argv    []string `json:"argv,omitempty"`
	Message string   `json:"message,omitempty"` // text for people
	Records int      `json:"records,omitempty"` // number of OpRecord that follow
	Starts  int      `json:"starts,omitempty"`  // number of supervisors that were started, including this one
	Last    string   `json:"last,omitempty"`    // how the last supervisor ended, as text
	Status  uint32   `json:"status,omitempty"`  // raw wait status of pid, or of the last supervisor
}

// Frame returns the encoded message. It fails only if the message exceeds the limits.
func (m Message) Frame() ([]byte, error) {
	body, err := json.Marshal(m)
	if err == nil && len(body) > MaxFrame {
		err = &BadFrame{"longer than a frame may be"}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), err
}

// BadFrame is the error for a frame that is too long or cannot be decoded. The frames behind it
// can still be received.
type BadFrame struct{ Why string }

func (e *BadFrame) Error() string { return "bad frame: " + e.Why }
