// Package vault is the supervisor's side of its keeper. A supervisor stores vault entries in
// its keeper, and receives them again when it is started after the death of another supervisor.
//
// Invariant: when Put has returned without an error, the keeper holds duplicates of the entry's
// descriptors, and they survive the death of this process.
//
// Not here: the content of an entry. If the keeper has died (Lost), Handover makes the manifest
// for another keeper; the caller execs that keeper.
package vault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"holdfast/shared/machine"
	"holdfast/supervisor/internal/keeper/message"
)

// ErrLost is returned if the connection to the keeper has ended.
var ErrLost = errors.New("vault: connection to the keeper has ended")

// An Entry is a vault entry.
type Entry = message.Entry

// An Exit is the exit status of a child that ended while its supervisor was dead; Status is the
// raw wait status (syscall.WaitStatus). Pids are used again. If the end of an entry's child was
// already seen, the exit belongs to a later process of the same pid.
type Exit struct {
	PID    int
	Status uint32
}

// Before describes the supervisors before this one.
type Before struct {
	Starts int    // number of supervisors that were started, including this one
	Last   string // how the last supervisor ended, as text; "" if this one is the first
	Status uint32 // raw wait status of the last supervisor
}

// A Vault is a connection to the keeper. Its methods may be called by several goroutines. Each
// of them waits for the keeper's answer or for the end of its context; in the latter case the
// keeper may have executed the request or not.
type Vault struct {
	conn      *message.Conn
	exited    func(Exit)
	before    Before
	lost      chan struct{}
	readEnded chan struct{} // closed when the goroutine that reads has ended

	writing   chan struct{} // holds a token; its owner may write, and may use remainder
	remainder []byte        // unsent part of a frame; its writer has stopped at a deadline or an error

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]chan error
}

// Connect connects to the keeper through the socket fd, which the keeper gave to this process
// at its start (its number is in the environment variable message.EnvSocket). The Vault owns the
// socket. Connect returns all entries of the keeper and all exits that the keeper has kept. The
// descriptors of the entries belong to the caller. For each later exit it calls exited, one at a time;
// exited must not wait for the vault.
func Connect(fd int, exited func(Exit)) (*Vault, []Entry, []Exit, error) {
	v, err := open(fd, exited)
	if err != nil {
		return nil, nil, nil, err
	}
	entries, exits, err := v.restore()
	if err == nil {
		err = v.hello()
	}
	if err != nil {
		for _, e := range entries {
			message.Close(e.FDs)
		}
		v.conn.Close()
		return nil, nil, nil, fmt.Errorf("vault: %w", err)
	}
	go v.read()
	return v, entries, exits, nil
}

// Resume continues with a socket after Detach, in the same process. The keeper does not send
// its entries again.
func Resume(fd int, exited func(Exit)) (*Vault, error) {
	v, err := open(fd, exited)
	if err != nil {
		return nil, err
	}
	go v.read()
	return v, nil
}

func open(fd int, exited func(Exit)) (*Vault, error) {
	conn, err := message.NewConn(fd)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	v := &Vault{conn: conn, exited: exited, lost: make(chan struct{}), readEnded: make(chan struct{}),
		writing: make(chan struct{}, 1), waiting: map[uint64]chan error{}}
	// Answers to requests of the previous program may still arrive, so the sequence numbers must
	// differ from those of that program.
	v.seq = uint64(time.Now().UnixMicro())
	v.writing <- struct{}{}
	return v, nil
}

func (v *Vault) hello() error {
	frame, err := message.Message{Op: message.OpHello, Version: message.Version}.Frame()
	if err == nil {
		_, err = v.conn.Send(frame, nil)
	}
	return err
}

// restore reads the messages that the keeper sends first: its greeting, entries and exits.
func (v *Vault) restore() (entries []Entry, exits []Exit, err error) {
	for {
		m, fds, err := v.conn.Receive()
		if err != nil {
			return entries, nil, fmt.Errorf("restore: %w", err)
		}
		switch m.Op {
		case message.OpHello:
			v.before = Before{m.Starts, m.Last, m.Status}
		case message.OpRecord:
			entries = append(entries, Entry{ID: m.ID, PID: m.PID, Meta: m.Meta, FDs: fds})
		case message.OpExit:
			exits = append(exits, Exit{m.PID, m.Status})
		case message.OpEnd:
			return entries, exits, nil
		}
	}
}

// Before describes the supervisors before this one. It is zero after Resume.
func (v *Vault) Before() Before { return v.before }

// Lost returns a channel that is closed when the connection to the keeper has ended.
func (v *Vault) Lost() <-chan struct{} { return v.lost }

// Close closes the connection. The keeper keeps all entries.
func (v *Vault) Close() error {
	err := v.conn.Close()
	<-v.readEnded
	return err
}

// Put stores an entry in the keeper, and replaces the entry of the same id. The descriptors
// still belong to the caller, and must stay open until Put returns.
func (v *Vault) Put(ctx context.Context, e Entry) error {
	if !utf8.ValidString(e.ID) {
		return fmt.Errorf("vault: put: invalid vault entry: id %q is not UTF-8", e.ID)
	}
	return v.call(ctx, message.Message{Op: message.OpPut, ID: e.ID, PID: e.PID, Meta: e.Meta, FDs: len(e.FDs)}, e.FDs)
}

// SetPID sets the pid of an entry, so that the keeper keeps the exit status of that child.
func (v *Vault) SetPID(ctx context.Context, id string, pid int) error {
	return v.call(ctx, message.Message{Op: message.OpPID, ID: id, PID: pid}, nil)
}

// Delete deletes an entry, and the exit status of its child.
func (v *Vault) Delete(ctx context.Context, id string) error {
	return v.call(ctx, message.Message{Op: message.OpDelete, ID: id}, nil)
}

// Ready reports that this supervisor has restored all sessions and serves. The keeper should
// therefore start this program again, with argv, if this process dies. If argv is empty, the
// keeper uses its configured arguments.
func (v *Vault) Ready(ctx context.Context, argv ...string) error {
	return v.call(ctx, message.Message{Op: message.OpReady, Argv: argv}, nil)
}

// Leave announces that this process will exec another program. The next call of Ready, by that
// program or, if the exec fails, by this one, ends that state.
func (v *Vault) Leave(ctx context.Context) error {
	return v.call(ctx, message.Message{Op: message.OpLeave}, nil)
}

// Alive reports that the work before Ready still makes progress.
func (v *Vault) Alive(ctx context.Context) error {
	return v.call(ctx, message.Message{Op: message.OpAlive}, nil)
}

// Quit requests that the keeper ends when this process exits with code 0. With any other code,
// the keeper ends only if it holds no session.
func (v *Vault) Quit(ctx context.Context) error {
	return v.call(ctx, message.Message{Op: message.OpQuit}, nil)
}

// Exec makes the keeper exec program with argv, and returns when the new keeper has taken over.
// If it fails, the old keeper continues.
func (v *Vault) Exec(ctx context.Context, argv []string, program *os.File) error {
	return machine.Control(program, func(fd int) error {
		return v.call(ctx, message.Message{Op: message.OpExec, Argv: argv, FDs: 1}, []int{fd})
	})
}
