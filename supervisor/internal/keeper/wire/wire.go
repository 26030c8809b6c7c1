// Package wire is what a keeper and its supervisor say to each other: messages
// as JSON behind their length, on a Unix socket that passes descriptors.
//
// Invariant: version 1 is frozen. It may grow by ops and fields, which both sides
// ignore if they do not know them; what is there keeps its meaning.
//
// Not here: what comes of a message (packages keeper and vault).
package wire

import (
	"encoding/binary"
	"encoding/json"
)

// What a process is started with, in its environment, as numbers of descriptors.
const (
	EnvSocket = "HOLDFAST_KEEPER"        // a supervisor: leads to the keeper
	EnvResume = "HOLDFAST_KEEPER_RESUME" // a keeper: a manifest to go on with
	EnvTrial  = "HOLDFAST_KEEPER_TRIAL"  // a keeper: a manifest to say whether it could
)

// OwnID is the id of a record that is the keeper's own: one file, whose lock says that
// the directory has a keeper. Each supervisor gets a duplicate and passes that on, so that
// the lock lasts until keeper and supervisor have both ended.
const OwnID = "keeper"

// Version counts incompatible meanings of the protocol and of the manifest.
// There is one, for good: a keeper outlives many supervisors.
const Version = 1

// Limits of what a supervisor can make the keeper hold. They are far above what
// it needs: as many terminals as Linux has (4,096), each with a screen's worth
// of state and a handful of descriptors, twice.
const (
	MaxID        = 200      // bytes of UTF-8
	MaxMeta      = 64 << 10 // bytes
	MaxFDs       = 8        // of a record
	MaxRecords   = 8192
	MaxMetaTotal = 64 << 20  // bytes, of all records
	MaxFrame     = 128 << 10 // bytes of JSON: MaxMeta in base64 is 86 KiB
)

// Ops, from the supervisor. Each with a seq is answered by OpOK or OpError; an
// OpError without seq is about something that could not be read.
const (
	OpHello  = "hello"  // version
	OpPut    = "put"    // id, pid, meta, descriptors: in place of the record of that id
	OpPID    = "pid"    // id, pid
	OpDelete = "delete" // id: and what is known of how its pid ended
	OpReady  = "ready"  // argv: all was restored, the program serves, and is started again with argv; none: as configured
	OpLeave  = "leave"  // this process becomes another program, which serves when it says ready
	OpAlive  = "alive"  // what is done before ready takes long, and goes on
	OpExec   = "exec"   // argv, descriptor of a program: become that keeper
	OpQuit   = "quit"   // when this supervisor exits in order, so does the keeper
)

// Ops, from the keeper: OpHello (version, records, starts, last, status), an
// OpRecord (id, pid, meta, descriptors) for each, an OpExit (pid, status) for
// each that is known, OpEnd; then OpExit whenever an orphan ends, and answers.
// It reads nothing while it has something to say.
const (
	OpRecord = "record"
	OpExit   = "exit"
	OpEnd    = "end"
	OpOK     = "ok"    // seq
	OpError  = "error" // seq, message
)

// A Message is any of both ways, as JSON behind its length (4 bytes, big
// endian). A field that is not there is zero; unknown ones are ignored.
type Message struct {
	Op      string   `json:"op"`
	Seq     uint64   `json:"seq,omitempty"`
	Version int      `json:"version,omitempty"`
	ID      string   `json:"id,omitempty"`
	PID     int      `json:"pid,omitempty"`     // 0: not known
	Meta    []byte   `json:"meta,omitempty"`    // base64
	FDs     int      `json:"fds,omitempty"`     // descriptors sent with the frame's first byte
	Argv    []string `json:"argv,omitempty"`    //
	Message string   `json:"message,omitempty"` // for people
	Records int      `json:"records,omitempty"` // that will follow
	Starts  int      `json:"starts,omitempty"`  // of a supervisor, with this one
	Last    string   `json:"last,omitempty"`    // how the one before ended, for people
	Status  uint32   `json:"status,omitempty"`  // raw wait status: of pid, or of the one before
}

// Frame is the message as it is sent. It fails for none that keeps the limits.
func (m Message) Frame() ([]byte, error) {
	body, err := json.Marshal(m)
	if err == nil && len(body) > MaxFrame {
		err = &BadFrame{"longer than a frame may be"}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), err
}

// BadFrame is what could not be understood. The frames behind it can be.
type BadFrame struct{ Why string }

func (e *BadFrame) Error() string { return "bad frame: " + e.Why }
