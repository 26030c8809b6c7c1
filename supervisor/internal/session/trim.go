package session

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// The runtime collects garbage when the heap has doubled, and after two minutes. It returns free memory to the
// system slowly, because it expects that the memory is needed again. After a burst of output, the memory
// of the unpacked histories would therefore stay with the process: for a session with 10,000 lines five times
// as much as the packed history.

const (
	trimAfter = 3 * time.Second // so that sessions that fall idle together cause one trim, and a keyframe that is being stored is garbage then
	// Trims take a hundredth of the time, trimShare, but not if the machine is so busy that a trim takes long.
	trimShare    = 100
	maxTrimPause = 10 * time.Second
)

// trimmer returns memory to the system when sessions have fallen idle. All sessions of a table share it.
type trimmer struct {
	mu      sync.Mutex
	pending bool
	notTill time.Time
}

// request makes a trim happen soon.
func (t *trimmer) request() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending {
		return
	}
	t.pending = true
	time.AfterFunc(max(trimAfter, time.Until(t.notTill)), t.trim)
}

func (t *trimmer) trim() {
	t.mu.Lock()
	t.pending = false // a request from here on concerns memory that this trim may not see
	t.mu.Unlock()
	began := time.Now()
	runtime.GC() // each collection halves the stacks that are almost empty: three quarters of the memory of an idle session's goroutines
	runtime.GC()
	debug.FreeOSMemory()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notTill = time.Now().Add(min(trimShare*time.Since(began), maxTrimPause))
}

const (
	// slowOutput is the output between two alarms of idle up to which a session counts as slow. To pack it
	// takes some milliseconds of processor time.
	slowOutput = 1 << 20
	// minTrim are the bytes that packOld must have saved until it is worth a trim.
	minTrim = 128 << 10
)

// packOld packs the older lines and output of a session that prints all the time, but slowly, such as the log of a
// server. The content of a flood is replaced too soon.
func (d *display) packOld() {
	from := d.packedTo
	d.packedTo = d.received
	if d.restoring != nil || d.received-from > slowOutput {
		return
	}
	saved := 0
	d.use(func() { saved = d.screen.PackOld() })
	d.ring.Pack()
	if saved >= minTrim {
		d.cfg.trimmer.request()
	}
}
