// Package keep is what a supervisor's keeper lets other processes see: that it
// lives, and that it holds everything and starts no supervisor any more.
//
// Invariant: a pid that is returned is of a process that is a keeper of this
// directory right now; the kernel says so, by a lock that ends with the process.
//
// Not here: keeping (supervisor/internal/keeper).
package keep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The files, in the runtime directory. Those of the locks are never removed.
const (
	lockFile = "keeper.lock" // locked by the keeper, so that the kernel tells its pid

	// claimName names keeping.lock, which keeper and supervisor hold together: it is free
	// when both have ended. It is another file, as some systems have one kind of lock.
	claimName = "keeping"
	heldFile  = "keeper.held" // a Held, from a crash loop on until a supervisor serves
	unitFile  = "keeper.unit" // there while a service manager starts the keeper again
	nextFile  = "keeper.next" // the path of a program, from Choose until the keeper reads it
)

// Held is a keeper that starts no supervisor any more: too many have died.
type Held struct {
	PID    int       `json:"pid"`    // of the keeper
	Deaths int       `json:"deaths"` // of supervisors, within a minute
	At     time.Time `json:"at"`
}

// Error says how to go on.
func (h *Held) Error() string {
	return fmt.Sprintf("%d supervisors died within a minute, so none is started any more, and process %d holds the sessions, which go on. "+
		"Why they died is in supervisor.log and supervisor.crash; to have another program serve them: `supervisor --upgrade` of that program; "+
		"to try the same one again: kill -HUP %d", h.Deaths, h.PID, h.PID)
}

// WriteHeld writes down that this process, the keeper, starts no supervisor any more.
func WriteHeld(dir string, deaths int) error {
	data, err := json.Marshal(&Held{PID: os.Getpid(), Deaths: deaths, At: time.Now()})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, heldFile)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Serves says that a supervisor is there: nothing is only held.
func Serves(dir string) { _ = os.Remove(filepath.Join(dir, heldFile)) } // mostly there is none

// SetManaged says whether a service manager starts the keeper again if that dies.
func SetManaged(dir string, managed bool) error {
	path := filepath.Join(dir, unitFile)
	if managed {
		return os.WriteFile(path, nil, 0o600)
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Managed reports whether the last keeper was a service manager's, and has not ended
// in order: another one comes, unless the manager has gone, too.
func Managed(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, unitFile))
	return err == nil
}

// Look returns what is held, or nil where a supervisor serves, begins to, or where
// no keeper lives.
func Look(dir string) *Held {
	data, err := os.ReadFile(filepath.Join(dir, heldFile))
	if err != nil {
		return nil
	}
	h := new(Held)
	if err := json.Unmarshal(data, h); err != nil {
		return nil // another version's
	}
	if pid, err := PID(dir); err != nil || pid == 0 || pid != h.PID {
		return nil // left by one that is gone
	}
	return h
}
