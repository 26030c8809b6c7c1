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

	"holdfast/shared/machine"
	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

// Environment variables that systemd sets for a service; see sd_notify(3) and sd_listen_fds(3).
const (
	envNotify = "NOTIFY_SOCKET"
	envMain   = "SYSTEMD_EXEC_PID" // pid of the process that systemd has started
	envPID    = "LISTEN_PID"
	envCount  = "LISTEN_FDS"
	envNames  = "LISTEN_FDNAMES"
)

const (
	prefix   = "holdfast-" // of the names of all descriptors
	metaName = "meta"      // name of the file that holds an entry's meta
	version  = 1
	maxFiles = 8 // of one entry; equal to wire.MaxFDs

	// patience is how long a message to systemd may take. systemd's socket has a queue, so
	// sending takes no time unless systemd hangs, and a session must not wait for that.
	patience = time.Second

	// retryEvery is how long nothing is sent to a systemd that has not taken a message in that time.
	retryEvery = 5 * time.Second

	// retryShare is the part of patience that an attempt to send an entry later may take. Sessions wait for the attempt.
	retryShare = 10
)

// meta describes an entry and the number of its files. It is the content of a slate, which is
// stored as one more file.
type meta struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	PID     int    `json:"pid,omitempty"`
	Meta    []byte `json:"meta"`
	Files   int    `json:"files"`
}

// Managed reports whether systemd runs this process itself as a service that notifies systemd.
// If systemd runs an ancestor of this process, Managed removes NOTIFY_SOCKET from the
// environment, because this process and its children must not send notifications for that
// service.
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

// Inherited returns the entries that systemd stored during the service's previous run. Their
// descriptors are close-on-exec and belong to the caller. Descriptors that belong to no
// complete entry are closed.
func Inherited() []vault.Entry {
	names, count := strings.Split(os.Getenv(envNames), ":"), 0
	if os.Getenv(envPID) == strconv.Itoa(os.Getpid()) {
		count, _ = strconv.Atoi(os.Getenv(envCount))
	}
	for _, name := range []string{envPID, envCount, envNames} {
		_ = os.Unsetenv(name)
	}
	const first = 3
	found := map[string]map[string]int{} // by name of the entry and of the file
	for i := range count {
		fd := first + i
		unix.CloseOnExec(fd)
		if i >= len(names) {
			continue
		}
		name, file, ok := strings.Cut(strings.TrimPrefix(names[i], prefix), ".")
		if !ok || !strings.HasPrefix(names[i], prefix) || found[name][file] != 0 {
			_ = unix.Close(fd) // not stored by this program, or stored twice
			continue
		}
		if found[name] == nil {
			found[name] = map[string]int{}
		}
		found[name][file] = fd
	}
	var all []vault.Entry
	for name, files := range found {
		if r, ok := assemble(name, files); ok {
			all = append(all, r)
		}
		for _, fd := range files {
			_ = unix.Close(fd)
		}
	}
	return all
}

// assemble returns the entry of that name, if all of its files are there. It removes the
// descriptors that the entry owns from files.
func assemble(name string, files map[string]int) (r vault.Entry, ok bool) {
	fd, ok := files[metaName]
	if !ok {
		return r, false
	}
	delete(files, metaName)
	s, err := slate.Adopt(os.NewFile(uintptr(fd), metaName))
	if err != nil {
		return r, false
	}
	defer func() { _ = s.Close() }() // its content was read
	var m meta
	data, err := s.Read()
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil || m.Version != version || entryName(m.ID) != name || m.Files < 0 || m.Files > maxFiles {
		return r, false
	}
	r = vault.Entry{ID: m.ID, PID: m.PID, Meta: m.Meta}
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

// entryName returns a name for an entry that is valid in the name of a descriptor, because an
// id may contain any character.
func entryName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

func fileName(id, file string) string { return prefix + entryName(id) + "." + file }

// A Store is a vault that stores each entry in another vault and in systemd. Its methods fail
// only if the other vault fails.
//
// If systemd does not take a message in time, the Store owes it that entry and all later ones, and tries to send
// them every retryEvery, so that the sessions do not wait each time. It owes at most one entry for each session that
// exists, or of which systemd may have files.
type Store struct {
	vault Vault
	log   zerolog.Logger
	conn  *net.UnixConn

	patience   time.Duration // this and retryEvery are the constants of these names, except in tests
	retryEvery time.Duration

	mu    sync.Mutex
	held  map[string]*storedEntry
	owed  map[string]*owedEntry // empty unless systemd did not take a message in time
	retry *time.Timer           // nil unless entries are owed
}

// An owedEntry is what systemd is to be sent later about one id.
type owedEntry struct {
	entry     vault.Entry // its descriptors are duplicates, which the Store owns
	isDeleted bool        // the entry is to be removed; otherwise it is to be stored
}

func (o *owedEntry) close() {
	for _, fd := range o.entry.FDs {
		_ = unix.Close(fd) // a duplicate
	}
}

// A storedEntry describes the files of an entry that systemd holds.
type storedEntry struct {
	files int
	meta  meta
	slate *slate.Slate // nil if a previous program stored the entry
}

// Over returns a Store over v, or v itself if NOTIFY_SOCKET is not set. before are the ids of
// entries of which systemd may hold files.
func Over(v Vault, before []string, log zerolog.Logger) Vault {
	conn, err := dial()
	if err != nil {
		log.Warn().Err(err).Msg("systemd not connected; it stores no vault entries")
	}
	if conn == nil {
		return v
	}
	s := &Store{vault: v, log: log, conn: conn, patience: patience, retryEvery: retryEvery, held: map[string]*storedEntry{}, owed: map[string]*owedEntry{}}
	for _, id := range before {
		s.held[id] = &storedEntry{files: maxFiles}
	}
	return s
}

// dial connects to systemd's socket. It returns nil without an error if NOTIFY_SOCKET is not
// set.
func dial() (*net.UnixConn, error) {
	path := os.Getenv(envNotify)
	if path == "" {
		return nil, nil
	}
	return net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
}

// Put stores an entry in the vault, and then in systemd.
func (s *Store) Put(ctx context.Context, r vault.Entry) error {
	err := s.vault.Put(ctx, r)
	if err == nil {
		s.notify(r, false)
	}
	return err
}

// SetPID sets the pid of an entry in the vault and in systemd.
func (s *Store) SetPID(ctx context.Context, id string, pid int) error {
	err := s.vault.SetPID(ctx, id, pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owed[id]; o != nil {
		o.entry.PID = pid
	}
	if e := s.held[id]; e != nil && e.slate != nil { // the entry's slate is open for writing
		e.meta.PID = pid
		s.logError(id, e.save())
	}
	return err
}

// Delete deletes an entry in systemd and in the vault.
func (s *Store) Delete(ctx context.Context, id string) error {
	s.notify(vault.Entry{ID: id}, true)
	return s.vault.Delete(ctx, id)
}

// Close closes the connection to systemd and the slates. systemd keeps all entries; what it is owed is not sent any more.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.owed {
		s.settle(id)
	}
	if s.retry != nil {
		s.retry.Stop()
	}
	for _, e := range s.held {
		if e.slate != nil {
			_ = e.slate.Close() // systemd has a duplicate
		}
	}
	return s.conn.Close()
}

// notify stores or removes an entry in systemd, now or later.
func (s *Store) notify(r vault.Entry, isDeleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.owed) > 0 && isDeleted && s.held[r.ID] == nil: // systemd has nothing to remove
		s.settle(r.ID)
		return
	case len(s.owed) > 0:
		s.owe(r, isDeleted)
		return
	}
	err := s.transmit(r, isDeleted, s.patience)
	s.logError(r.ID, err)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.owe(r, isDeleted)
	}
}

// transmit stores or removes an entry in systemd within limit.
func (s *Store) transmit(r vault.Entry, isDeleted bool, limit time.Duration) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if isDeleted {
		return s.remove(r.ID)
	}
	return s.put(r)
}

// owe keeps an entry until pay sends it. It makes duplicates of the descriptors, which belong to the caller of Put.
func (s *Store) owe(r vault.Entry, isDeleted bool) {
	s.settle(r.ID)
	o := &owedEntry{entry: r, isDeleted: isDeleted}
	o.entry.FDs = nil
	for _, fd := range r.FDs {
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			o.close()
			s.logError(r.ID, fmt.Errorf("duplicate a descriptor for later: %w", err))
			o = &owedEntry{entry: vault.Entry{ID: r.ID}, isDeleted: true} // an outdated copy would be worse than none
			break
		}
		o.entry.FDs = append(o.entry.FDs, d)
	}
	s.owed[r.ID] = o
	if s.retry == nil {
		s.retry = time.AfterFunc(s.retryEvery, s.pay)
	}
}

// settle forgets what systemd is owed about an id.
func (s *Store) settle(id string) {
	if o := s.owed[id]; o != nil {
		o.close()
		delete(s.owed, id)
	}
}

// pay sends the entries that are owed, until one of them is not taken in time. Between two of them, sessions may
// continue.
func (s *Store) pay() {
	for count := 0; s.payOne(count == 0); count++ {
	}
}

// payOne sends one owed entry and reports whether there may be another one.
func (s *Store) payOne(isFirst bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, o := range s.owed {
		err := s.transmit(o.entry, o.isDeleted, s.patience/retryShare)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.retry.Reset(s.retryEvery)
			return false
		}
		s.logError(id, err)
		s.settle(id)
		return true
	}
	s.retry = nil
	if !isFirst { // otherwise Close came first
		s.log.Info().Msg("systemd takes messages again, and has all vault entries")
	}
	return false
}

func (s *Store) logError(id string, err error) {
	if err != nil {
		s.log.Warn().Err(err).Str("record", id).Msg("vault entry not stored in systemd, or its copy there is outdated")
	}
}

// put stores all files of an entry in systemd. It sends the meta last, because an entry without
// its meta is incomplete and is ignored.
func (s *Store) put(r vault.Entry) error {
	if err := s.remove(r.ID); err != nil {
		return err
	}
	sl, err := slate.New("holdfast-record")
	if err != nil {
		return err
	}
	e := &storedEntry{files: len(r.FDs), slate: sl, meta: meta{Version: version, ID: r.ID, PID: r.PID, Meta: r.Meta, Files: len(r.FDs)}}
	s.held[r.ID] = e
	if err := e.save(); err != nil {
		return err
	}
	for i, fd := range r.FDs {
		if err := s.send(r.ID, strconv.Itoa(i), fd); err != nil {
			return err
		}
	}
	// It does not matter whether the file blocks, because it is read and written at offsets.
	return machine.Control(sl.File(), func(fd int) error { return s.send(r.ID, metaName, fd) })
}

func (e *storedEntry) save() error {
	data, err := json.Marshal(e.meta)
	if err != nil {
		return err
	}
	return e.slate.Write(data)
}

// send stores one file in systemd. FDPOLL=0 is necessary, because systemd would otherwise drop
// the terminal of a child that has ended.
func (s *Store) send(id, file string, fd int) error {
	return sendFile(s.conn, "FDSTORE=1\nFDPOLL=0\nFDNAME="+fileName(id, file), fd)
}

// sendFile sends a message with a descriptor. Package net cannot do that on a socket that is
// connected.
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

// remove deletes an entry's files in systemd. It deletes the meta first, so that the entry is
// never complete while files are missing.
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

// Ready notifies systemd that the service runs, if NOTIFY_SOCKET is set.
func Ready() error { return notifySystemd("READY=1") }

// Main notifies systemd that process pid is the main process of the service. It returns after
// systemd has handled that message, so that this process may end then.
func Main(pid int) error {
	if err := notifySystemd(fmt.Sprintf("READY=1\nMAINPID=%d", pid)); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	conn, err := dial()
	if err == nil && conn != nil {
		defer func() { _ = conn.Close() }()
		err = machine.Control(w, func(fd int) error { return sendFile(conn, "BARRIER=1", fd) })
	}
	_ = w.Close() // systemd closes its duplicate when it has handled all messages before
	if err != nil {
		return err
	}
	if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	_, _ = r.Read(make([]byte, 1)) // returns when systemd closes its duplicate, or at the deadline
	return nil
}

func notifySystemd(text string) error {
	conn, err := dial()
	if err != nil || conn == nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(text))
	return err
}
