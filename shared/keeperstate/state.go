// Package keeperstate contains the files in the runtime directory by which other processes learn
// about the keeper of a supervisor: that it lives, and that it holds the sessions without
// starting a supervisor. By another file they tell it the program to start next.
//
// Invariant: a pid that this package returns belongs to a process that is the keeper of the
// directory now. The kernel guarantees this by a lock that ends with the process.
//
// Not here: the keeper itself (supervisor/internal/keeper).
package keeperstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Names of the files in the runtime directory. The lock files are never removed.
const (
	lockFile = "keeper.lock" // locked by the keeper with fcntl, which can return the pid of the lock's holder

	// claimName is the name of the lock keeping.lock, which the keeper and its supervisors
	// hold together, so that it is free only when all have ended. It is separate from
	// lockFile, because on some systems flock and fcntl locks of one file exclude each other.
	claimName = "keeping"
	heldFile  = "keeper.held" // a Held in JSON; exists from a crash loop until a supervisor serves
	unitFile  = "keeper.unit" // empty; exists if a service manager restarts the keeper
	nextFile  = "keeper.next" // the path of a program; exists from Choose until the keeper reads it
)

// Held describes a keeper that starts a supervisor only each minute, because too many have died.
type Held struct {
	PID    int       `json:"pid"`    // process id of the keeper
	Deaths int       `json:"deaths"` // deaths of supervisors within a minute
	At     time.Time `json:"at"`     // when the last supervisor died
}

// Error tells the user the cause and the next steps.
func (h *Held) Error() string {
	return fmt.Sprintf("%d supervisors died within a minute, so only one is started each minute. Process %d holds the sessions, which continue. "+
		"supervisor.log and supervisor.crash tell why the supervisors died. To serve the sessions with another program, run `supervisor --upgrade` of that program; "+
		"to try the same program at once, run kill -HUP %d", h.Deaths, h.PID, h.PID)
}

// WriteHeld records that this process, the keeper, starts a supervisor only each minute.
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

// ClearHeld removes the record of WriteHeld, because a supervisor serves.
func ClearHeld(dir string) { _ = os.Remove(filepath.Join(dir, heldFile)) } // usually the file does not exist

// SetManaged records whether a service manager restarts the keeper if it dies.
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

// renewEvery is how often KeepRenewed renews the files. Cleaners of temporary directories remove files that were not used for
// some days, three on macOS.
const renewEvery = time.Hour

// KeepRenewed renews the files of the keeper until ctx is done. The supervisor and the proxies do so, because the code of the
// keeper must be small. The proxies do it while the keeper starts no supervisor.
func KeepRenewed(ctx context.Context, dir string) {
	for {
		Renew(dir)
		select {
		case <-time.After(renewEvery):
		case <-ctx.Done():
			return
		}
	}
}

// Renew gives the files of the keeper a new modification time, so that a cleaner of temporary directories does not
// remove them. Without them, no other process finds the keeper.
func Renew(dir string) {
	now := time.Now()
	for _, name := range []string{lockFile, claimName + ".lock", unitFile, heldFile} {
		_ = os.Chtimes(filepath.Join(dir, name), now, now) // the last two files rarely exist
	}
}

// IsManaged reports whether a service manager started the last keeper and the keeper has not
// ended as requested. If it is true, another keeper should start soon, unless the service
// manager has ended, too.
func IsManaged(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, unitFile))
	return err == nil
}

// CheckHeld returns the Held of ReadHeld, which is the reason why no supervisor is started, or nil.
func CheckHeld(dir string) error {
	if h := ReadHeld(dir); h != nil {
		return h
	}
	return nil
}

// ReadHeld returns the record of WriteHeld. It returns nil if a supervisor serves or begins to
// serve, or if no keeper lives.
func ReadHeld(dir string) *Held {
	data, err := os.ReadFile(filepath.Join(dir, heldFile))
	if err != nil {
		return nil
	}
	h := new(Held)
	if err := json.Unmarshal(data, h); err != nil {
		return nil // the file has the format of another version
	}
	if pid, err := PID(dir); err != nil || pid == 0 || pid != h.PID {
		return nil // the keeper that wrote the file has ended
	}
	return h
}
