// Package vault is the supervisor's side of its keeper: what the supervisor must
// not lose is put here, and is there again when another supervisor has come.
//
// Invariant: when Put has returned without an error, the keeper holds duplicates
// of the descriptors, whatever happens to this process.
//
// Not here: what is in a record. When the keeper has died (Lost), Handover makes
// what another one goes on with; the exec is the caller's.
package vault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"holdfast/supervisor/internal/keeper/wire"
)

// ErrLost is returned when the keeper is gone.
var ErrLost = errors.New("vault: the keeper is gone")

// A Record is what the keeper holds under an id: at most wire.MaxMeta bytes and
// wire.MaxFDs descriptors. PID is of the child whose exit is to be kept; 0 is not
// known yet.
type Record struct {
	ID   string
	PID  int
	Meta []byte
	FDs  []int
}

// An Exit is how a child ended that had lost its supervisor; Status is the raw
// wait status (syscall.WaitStatus). Pids come again: it is of a record's child
// only if that was not seen to end already.
type Exit struct {
	PID    int
	Status uint32
}

// Before says what was before this supervisor.
type Before struct {
	Starts int    // of supervisors, with this one
	Last   string // how the one before ended, for people; "" for the first
	Status uint32 // its raw wait status
}

// A Vault is a connection to the keeper. Its methods may be called by many at
// once; each waits for the keeper's answer, or until its context ends, and then
// it is not known whether it was done.
type Vault struct {
	conn   *wire.Conn
	exited func(Exit)
	before Before
	lost   chan struct{}
	still  chan struct{} // closed when nothing is read any more

	writing chan struct{} // holds a token; then rest may be used
	rest    []byte        // of a frame whose writer has given up
	broken  bool

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]chan error
}

// Connect takes over the socket that the keeper gave this process at its start
// (number in the environment, wire.EnvSocket) and returns all that it holds, with
// descriptors that are the caller's, and the exits it knows of. Later ones are told
// to exited, one after another; it must not wait for the vault.
func Connect(fd int, exited func(Exit)) (*Vault, []Record, []Exit, error) {
	v, err := open(fd, exited)
	if err != nil {
		return nil, nil, nil, err
	}
	records, exits, err := v.restore()
	if err == nil {
		err = v.hello()
	}
	if err != nil {
		for _, r := range records {
			wire.Close(r.FDs)
		}
		v.conn.Close()
		return nil, nil, nil, fmt.Errorf("vault: %w", err)
	}
	go v.read()
	return v, records, exits, nil
}

// Resume goes on with a socket after Detach, in the same process: nothing is told
// again.
func Resume(fd int, exited func(Exit)) (*Vault, error) {
	v, err := open(fd, exited)
	if err != nil {
		return nil, err
	}
	go v.read()
	return v, nil
}

func open(fd int, exited func(Exit)) (*Vault, error) {
	conn, err := wire.NewConn(fd)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	v := &Vault{conn: conn, exited: exited, lost: make(chan struct{}), still: make(chan struct{}),
		writing: make(chan struct{}, 1), waiting: map[uint64]chan error{}}
	// Numbers of an image before this one may still be on their way.
	v.seq = uint64(time.Now().UnixMicro())
	v.writing <- struct{}{}
	return v, nil
}

func (v *Vault) hello() error {
	frame, err := wire.Message{Op: wire.OpHello, Version: wire.Version}.Frame()
	if err == nil {
		_, err = v.conn.Send(frame, nil)
	}
	return err
}

// restore reads what the keeper says first.
func (v *Vault) restore() (records []Record, exits []Exit, err error) {
	for {
		m, fds, err := v.conn.Receive()
		if err != nil {
			return records, nil, fmt.Errorf("restore: %w", err)
		}
		switch m.Op {
		case wire.OpHello:
			v.before = Before{m.Starts, m.Last, m.Status}
		case wire.OpRecord:
			records = append(records, Record{m.ID, m.PID, m.Meta, fds})
		case wire.OpExit:
			exits = append(exits, Exit{m.PID, m.Status})
		case wire.OpEnd:
			return records, exits, nil
		}
	}
}

// Before says what was before this supervisor; nothing after Resume.
func (v *Vault) Before() Before { return v.before }

// Lost is closed when the keeper is gone.
func (v *Vault) Lost() <-chan struct{} { return v.lost }

// Close ends the connection; the keeper holds what it holds.
func (v *Vault) Close() error {
	err := v.conn.Close()
	<-v.still
	return err
}

// Put lets the keeper hold a record, in place of one of the same id. The
// descriptors stay the caller's, and have to stay open until it returns.
func (v *Vault) Put(ctx context.Context, r Record) error {
	if !utf8.ValidString(r.ID) {
		return fmt.Errorf("vault: put: id %q is not UTF-8", r.ID)
	}
	return v.call(ctx, wire.Message{Op: wire.OpPut, ID: r.ID, PID: r.PID, Meta: r.Meta, FDs: len(r.FDs)}, r.FDs)
}

// SetPID names the child whose exit is to be kept for a record.
func (v *Vault) SetPID(ctx context.Context, id string, pid int) error {
	return v.call(ctx, wire.Message{Op: wire.OpPID, ID: id, PID: pid}, nil)
}

// Delete lets a record go, and what is known of its child's exit.
func (v *Vault) Delete(ctx context.Context, id string) error {
	return v.call(ctx, wire.Message{Op: wire.OpDelete, ID: id}, nil)
}

// Ready says that all was restored: this program is good, and is to be started
// again with argv, if this process is lost. Without one, as the keeper is configured.
func (v *Vault) Ready(ctx context.Context, argv ...string) error {
	return v.call(ctx, wire.Message{Op: wire.OpReady, Argv: argv}, nil)
}

// Leave says that this process becomes another program, and serves again when that one
// calls Ready, or this one if it could not. A keeper of an older release returns an error.
func (v *Vault) Leave(ctx context.Context) error {
	return v.call(ctx, wire.Message{Op: wire.OpLeave}, nil)
}

// Alive says that what is done before Ready goes on.
func (v *Vault) Alive(ctx context.Context) error {
	return v.call(ctx, wire.Message{Op: wire.OpAlive}, nil)
}

// Quit says that the keeper is to end when this process exits with 0; with any
// other code, only if it holds nothing.
func (v *Vault) Quit(ctx context.Context) error {
	return v.call(ctx, wire.Message{Op: wire.OpQuit}, nil)
}

// Exec makes the keeper another program, and returns when that has gone on. After
// an error the keeper is what it was.
func (v *Vault) Exec(ctx context.Context, argv []string, program *os.File) error {
	raw, err := program.SyscallConn()
	if err != nil {
		return fmt.Errorf("vault: exec: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = v.call(ctx, wire.Message{Op: wire.OpExec, Argv: argv, FDs: 1}, []int{int(fd)})
	})
	return errors.Join(err, failed)
}
