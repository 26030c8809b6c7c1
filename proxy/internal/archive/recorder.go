// Package archive stores recordings of sessions in a directory or in a bucket of an S3-compatible store, so that they
// outlive the host, and shows and verifies them.
//
// A recording is one life of a session on a host. Its objects are HOST/ID@INSTANCE/index.json and segments
// HOST/ID@INSTANCE/START-END.zst, whose names are offsets of the output. A segment has a keyframe, the
// output, its times and sizes, and the hash of the segment before. It is stored with a conditional put, so
// that a repeated put has no effect. It ends after 4 MiB or segmentTime.
//
// The recorder reads each session with an attachment that is no viewer, at its own offset. If the store does not
// answer, the recorder holds at most one segment and the one that it is storing, and does not read on. Output
// that the ring has overwritten meanwhile is recorded as missing.
//
// Invariant: no session waits for a store. The segments that are stored of a recording never contradict each
// other. Nothing is loaded or started unless the setting recordings is set.
//
// Not here: the store of a host for its own sessions (packages past and recorder of the supervisor), the
// terminal core (package terminal), and the commands (package cli).
package archive

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/link"
	"holdfast/shared/logging"
)

const (
	lookEvery = time.Second // the pause between two looks at the list of sessions
	// maxSessions is how many sessions are recorded at a time.
	maxSessions = 1000
	// maxBuffered is how much output of all sessions waits to be stored, in bytes. Beyond it, the recorder does not
	// read on.
	maxBuffered = 128 << 20
	// retry is the pause after a failure of the store, which is doubled up to maxRetry.
	retry    = 200 * time.Millisecond
	maxRetry = 15 * time.Second
	// keyTime is how long the command of durable_key may take until the recorder starts it again.
	keyTime = 10 * time.Second
)

// A Link carries requests to the supervisor; *linkclient.Client implements it.
type Link interface {
	Linked() bool
	List(ctx context.Context, originator string) ([]protocol.SessionInfo, error)
	Call(ctx context.Context, request protocol.Message) (protocol.Message, error)
	Open(ctx context.Context, request protocol.Message) (*link.Stream, protocol.Message, error)
}

// A Recorder records the sessions of this host while it runs.
type Recorder struct {
	Link   Link
	Config Config
	Host   string // name of this host in the names of recordings
	Lock   string // path of a file; the process that holds its lock is the only recorder of the host
	Clock  string // path of the file of machine.AgeClock, by which the age of recordings counts
	Log    zerolog.Logger

	store   Store
	keys    *Keys
	buffer  buffer
	indexes sync.Mutex  // held while an index that may be stored already is replaced
	failing atomic.Bool // the last attempt to store something failed
	stats   counters
}

// Stats are the numbers of a recorder since its start.
type Stats struct {
	Sessions int    // sessions that are being recorded
	Bytes    uint64 // bytes of output that are stored
	Missed   uint64 // bytes of output that could not be recorded
	Failures uint64 // failed attempts to store an object
	IsUp     bool   // the store has answered last
}

type counters struct {
	sessions                atomic.Int64
	bytes, missed, failures atomic.Uint64
}

// Stats returns the present numbers.
func (r *Recorder) Stats() Stats {
	return Stats{int(r.stats.sessions.Load()), r.stats.bytes.Load(), r.stats.missed.Load(), r.stats.failures.Load(), !r.failing.Load()}
}

// record opens the store and records until ctx is done.
func (r *Recorder) record(ctx context.Context) {
	r.buffer.limit = maxBuffered
	for wait := retry; ; wait = min(2*wait, maxRetry) {
		opening, cancel := context.WithTimeout(ctx, keyTime)
		var err error
		r.store, r.keys, err = r.Config.Open(opening)
		cancel()
		if err == nil {
			break
		}
		r.noteFailure(ctx, err)
		if pause(ctx, wait) != nil {
			return
		}
	}
	r.failing.Store(false)
	r.Log.Info().Msg("recorder starts")
	r.recordAll(ctx)
}

// recordAll records the sessions that it finds until ctx is done.
func (r *Recorder) recordAll(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { r.retain(ctx) })
	known := map[protocol.Instance]bool{} // sessions that are or were recorded
	isFull := false
	for ; ctx.Err() == nil; _ = pause(ctx, lookEvery) {
		if !r.Link.Linked() { // a look must not start a supervisor
			continue
		}
		all, err := r.Link.List(ctx, "")
		if err != nil {
			continue // linkclient logs it, and the link comes back
		}
		present := map[protocol.Instance]bool{}
		for i := range all {
			info := &all[i]
			if present[info.Instance] = true; known[info.Instance] || !r.isRecorded(info) {
				continue
			}
			if r.stats.sessions.Load() >= maxSessions {
				if !isFull {
					isFull = true
					r.Log.Warn().Int(logging.Count, maxSessions).Msg("too many sessions to record; the others are not recorded")
				}
				continue // the sessions behind it stay known
			}
			known[info.Instance] = true
			s := newSession(r, info)
			r.stats.sessions.Add(1)
			wg.Go(func() {
				defer r.stats.sessions.Add(-1)
				s.run(ctx)
			})
		}
		for instance := range known {
			if !present[instance] {
				delete(known, instance)
			}
		}
	}
}

// isRecorded reports whether the setting and the label of a session let it be recorded.
func (r *Recorder) isRecorded(info *protocol.SessionInfo) bool {
	if info.State == protocol.StateLost || info.State == protocol.StateForgotten {
		return false
	}
	switch info.Labels[protocol.LabelRecord] {
	case "true":
		return true
	case "false":
		return false
	}
	return r.Config.All
}

// noteFailure counts and logs a failure of the store. Only the first of several failures is logged.
func (r *Recorder) noteFailure(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	r.stats.failures.Add(1)
	if !r.failing.Swap(true) {
		r.Log.Warn().Err(err).Msg("recordings cannot be stored; the recorder tries again")
	}
}

// noteSuccess logs that the store works again.
func (r *Recorder) noteSuccess() {
	if r.failing.Swap(false) {
		r.Log.Info().Msg("recordings are stored again")
	}
}

// persist calls a function of the store until it succeeds or ctx is done.
func (r *Recorder) persist(ctx context.Context, f func(context.Context) error) error {
	for wait := retry; ; wait = min(2*wait, maxRetry) {
		err := f(ctx)
		if err == nil {
			r.noteSuccess()
			return nil
		}
		r.noteFailure(ctx, err)
		if ended := pause(ctx, wait); ended != nil {
			return ended
		}
	}
}

// pause waits for a time. The error is that of ctx if ctx is done before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A buffer counts the output that waits to be stored.
type buffer struct {
	mu          sync.Mutex
	used, limit int
}

// take counts n more bytes, unless they would exceed the limit. Bytes are never refused if none wait.
func (b *buffer) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used > 0 && b.used+n > b.limit {
		return false
	}
	b.used += n
	return true
}

func (b *buffer) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}
