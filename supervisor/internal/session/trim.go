package session

import (
	"runtime/debug"
	"sync"
	"time"
)

// The runtime collects garbage when the heap has doubled, and after two minutes. It returns free memory to the
// system slowly, because it expects that the memory is needed again. After a burst of output, the memory
// of the unpacked histories would therefore stay with the process: for a session with 10,000 lines five times
// as much as the packed history.

const (
	trimAfter = time.Second      // so that sessions that fall idle together cause one trim
	trimEvery = 15 * time.Second // a trim costs up to some 10 ms of processor time
)

// trimmer returns memory to the system when sessions have fallen idle. All sessions of a table share it.
type trimmer struct {
	mu      sync.Mutex
	pending bool
	last    time.Time
}

// request makes a trim happen soon.
func (t *trimmer) request() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending {
		return
	}
	t.pending = true
	time.AfterFunc(max(trimAfter, time.Until(t.last.Add(trimEvery))), t.trim)
}

func (t *trimmer) trim() {
	debug.FreeOSMemory()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending, t.last = false, time.Now()
}
