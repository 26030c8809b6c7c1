//go:build unix

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"holdfast/protocol"
	"holdfast/shared/config"
	"holdfast/shared/socket"
	"holdfast/supervisor/internal/session"
	"holdfast/supervisor/internal/vault"
)

// presenceDir is the directory of the presences, in the directory of the state.
const presenceDir = "supervisors"

// presenceEntry is the id of the vault entry of a presence. It has one file.
const presenceEntry = "presence"

// A presence tells other supervisors that this one runs, and that the recordings of its sessions belong to it. Another
// supervisor may have the same state directory and another runtime directory: on a second host with the same home
// directory, or in a container. It would take the sessions of this one for lost. A presence is the lock of a file with the
// identity of the supervisor. The keeper has a duplicate of the file, so the presence ends with the sessions and not with a
// supervisor that dies.
type presence struct {
	dir  string
	lock *os.File
}

// showPresence makes the presence of a supervisor unless the program before has left it, and removes the files of supervisors
// that have ended.
func (b *before) showPresence(dirs config.Dirs, self protocol.Instance) (*presence, error) {
	p := &presence{dir: filepath.Join(dirs.State, presenceDir)}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return p, err
	}
	files, err := os.ReadDir(p.dir)
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".lock"); ok && name != string(self) {
			err = errors.Join(err, p.removeIfEnded(name))
		}
	}
	return p, errors.Join(err, p.hold(b, string(self)))
}

// hold takes the lock of a presence, and gives the keeper a duplicate. If the program before has left the lock, hold uses that.
func (p *presence) hold(b *before, name string) error {
	if r := b.find(presenceEntry); r != nil {
		inherited := os.NewFile(uintptr(r.FDs[0]), presenceEntry)
		if socket.AdoptLock(inherited, filepath.Join(p.dir, name)) {
			p.lock, b.presence = inherited, r
			return nil
		}
		_ = inherited.Close() // its file was removed, or is that of another identity
		b.deleteEntry(presenceEntry)
	}
	var err error
	p.lock, err = socket.Acquire(filepath.Join(p.dir, name))
	if inUse := (*socket.InUseError)(nil); errors.As(err, &inUse) { // the keeper has the lock, but an earlier release has not passed on the duplicate
		return nil
	}
	if err != nil {
		return err
	}
	fd, err := session.Descriptor(p.lock)
	if err != nil || b.vault == nil {
		return err
	}
	b.presence = &vault.Entry{ID: presenceEntry, FDs: []int{fd}}
	return inKeeperTime(func(ctx context.Context) error { return b.vault.Put(ctx, *b.presence) })
}

// removeIfEnded removes the file of a supervisor that has ended. It holds the lock meanwhile, so that the supervisor cannot
// take it just then.
func (p *presence) removeIfEnded(name string) error {
	lock, err := socket.Acquire(filepath.Join(p.dir, name))
	if inUse := (*socket.InUseError)(nil); errors.As(err, &inUse) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(p.dir, name+".lock")), lock.Close())
}

// isRunning reports whether another supervisor runs that has made recordings. If that is unknown, it reports true, because
// its sessions may run.
func (p *presence) isRunning(supervisor protocol.Instance) bool {
	if name := string(supervisor); name == "" || name != filepath.Base(name) { // an earlier release made the recording, or it is damaged
		return false
	}
	held, err := socket.Locked(filepath.Join(p.dir, string(supervisor)))
	return held || err != nil && !errors.Is(err, fs.ErrNotExist)
}
