//go:build linux || darwin

package keeper

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Exits of pids that no record names are kept for a while: a shell may end
// before its record got its pid. maxExits bounds them all; more than MaxRecords,
// so that those that are named always have room.
const (
	exitsKept = 10 * time.Minute
	maxExits  = MaxRecords + 4096
)

type record struct {
	PID  int    `json:"pid,omitempty"`
	Meta []byte `json:"meta,omitempty"`
	FDs  []int  `json:"fds,omitempty"`
}

type exit struct {
	PID    int       `json:"pid"`
	Status uint32    `json:"status"`
	At     time.Time `json:"at"`
}

// holdings are what outlives a supervisor.
type holdings struct {
	records map[string]*record
	meta    int          // bytes, of all
	exits   map[int]exit // by pid
	named   map[int]int  // how many records name a pid
}

func newHoldings() holdings {
	return holdings{map[string]*record{}, 0, map[int]exit{}, map[int]int{}}
}

// put takes the descriptors over, or leaves them to the caller with an error.
func (h *holdings) put(id string, r *record) error {
	old := h.records[id]
	had := 0
	if old != nil {
		had = len(old.Meta)
	}
	switch {
	case id == "" || len(id) > MaxID:
		return fmt.Errorf("an id has 1 to %d bytes", MaxID)
	case len(r.Meta) > MaxMeta:
		return fmt.Errorf("meta has at most %d bytes", MaxMeta)
	case r.PID < 0:
		return errors.New("no pid")
	case old == nil && len(h.records) >= MaxRecords:
		return fmt.Errorf("%d records are held, no more", MaxRecords)
	case h.meta-had+len(r.Meta) > MaxMetaTotal:
		return fmt.Errorf("meta has at most %d bytes in all", MaxMetaTotal)
	}
	if old != nil {
		h.drop(id, old)
	}
	h.records[id] = r
	h.meta += len(r.Meta)
	h.name(r)
	return nil
}

func (h *holdings) drop(id string, r *record) {
	closeAll(r.FDs)
	h.meta -= len(r.Meta)
	h.unname(r)
	delete(h.records, id)
}

func (h *holdings) delete(id string) error {
	r := h.records[id]
	if r == nil {
		return errUnknown
	}
	h.drop(id, r)
	if h.named[r.PID] == 0 {
		delete(h.exits, r.PID)
	}
	return nil
}

func (h *holdings) setPID(id string, pid int) error {
	r := h.records[id]
	if r == nil || pid < 0 {
		return errUnknown
	}
	h.unname(r)
	r.PID = pid
	h.name(r)
	return nil
}

var errUnknown = errors.New("no such record")

// name: an exit of a pid that is alive was another process's. One of a pid that
// is gone may be this record's, whose supervisor died before it could say so.
func (h *holdings) name(r *record) {
	if r.PID == 0 {
		return
	}
	h.named[r.PID]++
	if syscall.Kill(r.PID, 0) == nil {
		delete(h.exits, r.PID)
	}
}

func (h *holdings) unname(r *record) {
	if h.named[r.PID]--; h.named[r.PID] <= 0 {
		delete(h.named, r.PID)
	}
}

// ended keeps how an orphan ended.
func (h *holdings) ended(pid int, status uint32, now time.Time) {
	h.exits[pid] = exit{pid, status, now}
	if len(h.exits) > maxExits {
		h.forget(now)
	}
}

// forget drops exits that nobody will ask for; if that is not enough, those of
// no record from the oldest on, until there is room for many more.
func (h *holdings) forget(now time.Time) {
	enough := len(h.exits) <= maxExits
	for i, e := range h.inOrder() {
		if h.named[e.PID] == 0 && (now.Sub(e.At) > exitsKept || !enough && i < maxExits/4) {
			delete(h.exits, e.PID)
		}
	}
}

func (h *holdings) inOrder() []exit {
	var all []exit
	for _, e := range h.exits {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b exit) int { return a.At.Compare(b.At) })
	return all
}

func (h *holdings) exitPIDs() (pids []int) {
	for _, e := range h.inOrder() {
		pids = append(pids, e.PID)
	}
	return pids
}
