package fdstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

// Names of variables that systemd gives a service; see sd_notify(3) and
// sd_listen_fds(3).
const (
	envNotify = "NOTIFY_SOCKET"
	envMain   = "SYSTEMD_EXEC_PID" // whom systemd has started
	envPID    = "LISTEN_PID"
	envCount  = "LISTEN_FDS"
	envNames  = "LISTEN_FDNAMES"
)

const (
	prefix   = "holdfast-" // of all names
	metaName = "meta"      // of the file that says what the others are
	version  = 1
	maxFiles = 8 // of a record; as wire.MaxFDs

	// patience is how long systemd may take to take a message. It has a queue, so
	// that it takes none unless it hangs, and a session is not to wait for that.
	patience = time.Second
)

// meta is what a record's own file says, in a slate.
type meta struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	PID     int    `json:"pid,omitempty"`
	Meta    []byte `json:"meta"`
	Files   int    `json:"files"`
}

// Managed reports whether systemd runs this very process as a service that tells
// it how it gets on. Where it runs one that we descend from, that one's name is
// taken out of the environment: nobody shall speak for it.
func Managed() bool {
	if os.Getenv(envNotify) == "" {
		return false
	}
	if main := os.Getenv(envMain); main != "" && main != strconv.Itoa(os.Getpid()) {
		_ = os.Unsetenv(envNotify)
		return false
	}
	return true
}

// Inherited takes the records that systemd has held over from the service's last
// run. Their descriptors are close-on-exec, and the caller's.
func Inherited() []vault.Record {
	names, count := strings.Split(os.Getenv(envNames), ":"), 0
	if os.Getenv(envPID) == strconv.Itoa(os.Getpid()) {
		count, _ = strconv.Atoi(os.Getenv(envCount))
	}
	for _, name := range []string{envPID, envCount, envNames} {
		_ = os.Unsetenv(name)
	}
	const first = 3
	found := map[string]map[string]int{} // by record and file
	for i := range count {
		fd := first + i
		unix.CloseOnExec(fd)
		if i >= len(names) {
			continue
		}
		record, file, ok := strings.Cut(strings.TrimPrefix(names[i], prefix), ".")
		if !ok || !strings.HasPrefix(names[i], prefix) || found[record][file] != 0 {
			_ = unix.Close(fd) // not ours
			continue
		}
		if found[record] == nil {
			found[record] = map[string]int{}
		}
		found[record][file] = fd
	}
	var all []vault.Record
	for record, files := range found {
		if r, ok := assemble(record, files); ok {
			all = append(all, r)
		}
		for _, fd := range files {
			_ = unix.Close(fd)
		}
	}
	return all
}

// assemble takes the files that it needs out of the map.
func assemble(record string, files map[string]int) (r vault.Record, ok bool) {
	fd, ok := files[metaName]
	if !ok {
		return r, false
	}
	delete(files, metaName)
	s, err := slate.Adopt(os.NewFile(uintptr(fd), metaName))
	if err != nil {
		return r, false
	}
	defer func() { _ = s.Close() }() // it was read
	var m meta
	data, err := s.Read()
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil || m.Version != version || recordName(m.ID) != record || m.Files < 0 || m.Files > maxFiles {
		return r, false
	}
	r = vault.Record{ID: m.ID, PID: m.PID, Meta: m.Meta}
	for i := range m.Files {
		fd, ok := files[strconv.Itoa(i)]
		if !ok {
			return r, false
		}
		r.FDs = append(r.FDs, fd)
	}
	for i := range m.Files {
		delete(files, strconv.Itoa(i))
	}
	return r, true
}

// recordName is safe in the name of a descriptor, whatever the id has in it.
func recordName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

func fileName(id, file string) string { return prefix + recordName(id) + "." + file }

// A Store is a vault that has systemd hold all that another vault holds. Its
// methods fail only as the other's do.
type Store struct {
	vault Vault
	log   zerolog.Logger
	conn  *net.UnixConn

	patience time.Duration // see there

	mu   sync.Mutex
	held map[string]*entry
}

// An entry is what systemd was given of a record.
type entry struct {
	files int
	meta  meta
	slate *slate.Slate // nil for one that was there before us
}

// Over returns a store over v, where NOTIFY_SOCKET names whom to give it to, and
// else v itself. before are ids of which systemd may hold something.
func Over(v Vault, before []string, log zerolog.Logger) Vault {
	conn, err := dial()
	if err != nil {
		log.Warn().Err(err).Msg("the service manager cannot be told")
	}
	if conn == nil {
		return v
	}
	s := &Store{vault: v, log: log, conn: conn, patience: patience, held: map[string]*entry{}}
	for _, id := range before {
		s.held[id] = &entry{files: maxFiles}
	}
	return s
}

// dial returns nil where nobody is to be told.
func dial() (*net.UnixConn, error) {
	path := os.Getenv(envNotify)
	if path == "" {
		return nil, nil
	}
	return net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
}

// Put has both hold a record.
func (s *Store) Put(ctx context.Context, r vault.Record) error {
	err := s.vault.Put(ctx, r)
	if err == nil {
		s.tell(r.ID, func() error { return s.put(r) })
	}
	return err
}

// SetPID tells both whose exit belongs to a record.
func (s *Store) SetPID(ctx context.Context, id string, pid int) error {
	err := s.vault.SetPID(ctx, id, pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.held[id]; e != nil && e.slate != nil { // what it is in can be written to
		e.meta.PID = pid
		s.failed(id, e.write())
	}
	return err
}

// Delete has both let a record go.
func (s *Store) Delete(ctx context.Context, id string) error {
	s.tell(id, func() error { return s.remove(id) })
	return s.vault.Delete(ctx, id)
}

// Close lets go of what was opened for it; systemd holds what it holds.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.held {
		if e.slate != nil {
			_ = e.slate.Close() // it was sent
		}
	}
	return s.conn.Close()
}

func (s *Store) tell(id string, f func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.patience)); err != nil {
		s.failed(id, err)
		return
	}
	s.failed(id, f())
}

func (s *Store) failed(id string, err error) {
	if err != nil {
		s.log.Warn().Err(err).Str("record", id).Msg("the service manager does not hold this, or no longer as it is")
	}
}

// put sends the file that makes the record whole last.
func (s *Store) put(r vault.Record) error {
	if err := s.remove(r.ID); err != nil {
		return err
	}
	sl, err := slate.New("holdfast-record")
	if err != nil {
		return err
	}
	e := &entry{files: len(r.FDs), slate: sl, meta: meta{Version: version, ID: r.ID, PID: r.PID, Meta: r.Meta, Files: len(r.FDs)}}
	s.held[r.ID] = e
	if err := e.write(); err != nil {
		return err
	}
	for i, fd := range r.FDs {
		if err := s.send(r.ID, strconv.Itoa(i), fd); err != nil {
			return err
		}
	}
	// Blocking or not is the same: it is read and written at offsets.
	return control(sl.File(), func(fd int) error { return s.send(r.ID, metaName, fd) })
}

func (e *entry) write() error {
	data, err := json.Marshal(e.meta)
	if err != nil {
		return err
	}
	return e.slate.Write(data)
}

// send stores one file. It is not polled: a terminal whose child has ended would
// be dropped.
func (s *Store) send(id, file string, fd int) error {
	return sendFile(s.conn, "FDSTORE=1\nFDPOLL=0\nFDNAME="+fileName(id, file), fd)
}

// sendFile does what package net does not, with a socket that has a peer.
func sendFile(conn *net.UnixConn, text string, fd int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(to uintptr) bool {
		for {
			sent = unix.Sendmsg(int(to), []byte(text), unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
			if sent != unix.EINTR {
				return sent != unix.EAGAIN
			}
		}
	})
	return errors.Join(err, os.NewSyscallError("sendmsg", sent))
}

// remove removes first the file that makes the record whole.
func (s *Store) remove(id string) error {
	e := s.held[id]
	if e == nil {
		return nil
	}
	names := []string{metaName}
	for i := range e.files {
		names = append(names, strconv.Itoa(i))
	}
	for _, name := range names {
		if _, err := s.conn.Write([]byte("FDSTOREREMOVE=1\nFDNAME=" + fileName(id, name))); err != nil {
			return err
		}
	}
	delete(s.held, id)
	if e.slate != nil {
		return e.slate.Close()
	}
	return nil
}

func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	if err != nil {
		return err
	}
	return failed
}

// Ready tells systemd, where NOTIFY_SOCKET names it, that the service runs.
func Ready() error { return say("READY=1") }

// Main tells systemd that another process is the service's main one, and returns
// once it knows: this one may end.
func Main(pid int) error {
	if err := say(fmt.Sprintf("READY=1\nMAINPID=%d", pid)); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	conn, err := dial()
	if err == nil && conn != nil {
		defer conn.Close()
		err = control(w, func(fd int) error {
			return sendFile(conn, "BARRIER=1", fd)
		})
	}
	_ = w.Close() // systemd closes the other one when it has got so far
	if err != nil {
		return err
	}
	if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	_, _ = r.Read(make([]byte, 1)) // its end, or that it is late
	return nil
}

func say(text string) error {
	conn, err := dial()
	if err != nil || conn == nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(text))
	return err
}
