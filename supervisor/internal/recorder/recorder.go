// Package recorder copies the output of sessions to the store on disk (package past), so that a
// session can be shown, and started again, after the machine has lost power.
//
// Invariant: a session never waits for its recording. The recorder reads the session's ring at
// an offset of its own, as a viewer does. If the disk is slower than the output, or fails, what
// is missing is recorded as a gap.
//
// Invariant: nothing is written, and no goroutine wakes up, while a session prints nothing and
// does not change.
//
// Not here: the files (package past), and which sessions are recorded (package session).
package recorder

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/shared/logging"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/ring"
)

const (
	// defaultSync is the default of Config.Sync.
	defaultSync = time.Second
	// defaultRetry is the default of Config.Retry.
	defaultRetry = 10 * time.Second
	// closeAfter is how long a session must print nothing until its files are closed. They are
	// opened again when it prints.
	closeAfter = 10 * time.Second
	// maxTries bounds the steps in which a silent session is asked for its screen in vain.
	maxTries = 10
	// trimEvery is the shortest time between two checks of the budgets.
	trimEvery = time.Minute
	// diskTurns is how many recordings may wait for the disk at a time. Each of them occupies a
	// thread of the operating system.
	diskTurns = 4
	// readBytes is how much is copied from a ring at a time.
	readBytes = 128 << 10
)

// Config configures a recorder. A zero field means its default.
type Config struct {
	Store   *past.Store
	Sync    time.Duration // output is durable after this time at the latest; default 1 s
	Retry   time.Duration // a recording that has failed is tried again after this time; default 10 s
	Budgets past.Policy
	Log     zerolog.Logger
	Failed  func(past.Life, error) // called when a recording begins to fail; may be nil
}

// A Source is a session that is recorded. Its methods may be called by any goroutine.
type Source interface {
	Life() past.Life
	// Ring returns the ring with the output. It stays open until Release is called.
	Ring() *ring.Ring
	// Frame returns a saved screen at an offset of at least after, if the session can make one
	// now. If lines is true, the screen must include the history.
	Frame(after uint64, lines bool) (Frame, error)
	// Meta returns what meta.json has to contain now.
	Meta() past.Meta
	// Release is called once, after the last use of the ring.
	Release()
}

// A Frame is a saved screen.
type Frame struct {
	Offset  uint64
	Data    []byte
	IsWhole bool // it includes the history
}

// Counts are counters that only grow, except for Failing.
type Counts struct {
	Appended, Missing, Written, Syncs uint64 // as past.Stats
	Failures                          uint64 // how often a recording began to fail
	Failing                           uint64 // recordings that fail now
}

// A Recorder records sessions.
type Recorder struct {
	cfg   Config
	turns chan struct{}
	all   sync.WaitGroup

	mu       sync.Mutex
	tracks   map[past.Life]*track
	isClosed bool
	trimmed  time.Time
	counts   Counts // of the writers that are closed
	lastErr  error
}

// New returns a recorder without sessions.
func New(cfg Config) *Recorder {
	cfg.Sync, cfg.Retry = cmp.Or(cfg.Sync, defaultSync), cmp.Or(cfg.Retry, defaultRetry)
	return &Recorder{cfg: cfg, turns: make(chan struct{}, diskTurns), tracks: make(map[past.Life]*track)}
}

// Add begins to record a session in the given mode, or continues the recording that an earlier
// program has begun. It returns without waiting for the disk. The recording ends when the ring
// is finished and all of it is stored.
func (r *Recorder) Add(s Source, mode past.Mode) {
	t := &track{
		recorder: r, source: s, mode: mode, life: s.Life(), ring: s.Ring(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	t.log = r.cfg.Log.With().Str(logging.Session, string(t.life.ID)).Str(logging.Instance, string(t.life.Instance)).Logger()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed || r.tracks[t.life] != nil {
		s.Release()
		return
	}
	r.tracks[t.life] = t
	t.ring.Watch(t.wake)
	t.poke()
	r.all.Go(t.run)
}

// Poke tells that the Meta of a session may have changed.
func (r *Recorder) Poke(l past.Life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tracks[l]; t != nil {
		t.poke()
	}
}

// Forget ends the recording of a life and erases its files. It returns without waiting for the
// disk.
func (r *Recorder) Forget(l past.Life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tracks[l]; t != nil {
		t.isForgotten.Store(true)
		t.end()
		return
	}
	r.all.Go(func() { r.erase(l) })
}

func (r *Recorder) erase(l past.Life) {
	r.turns <- struct{}{}
	err := r.cfg.Store.Forget(l)
	<-r.turns
	if err != nil {
		r.cfg.Log.Error().Err(err).Str(logging.Session, string(l.ID)).Msg("recording of a forgotten session not erased")
	}
}

// Close ends all recordings, after what the sessions have printed is stored, or after the given
// time. The sessions may be recorded again by another Recorder, also of another process.
func (r *Recorder) Close(within time.Duration) error {
	r.mu.Lock()
	r.isClosed = true
	for _, t := range r.tracks {
		t.end()
	}
	r.mu.Unlock()
	done := make(chan struct{})
	go func() { r.all.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(within):
		return errors.New("recorder: the disk does not answer; the latest output is not stored")
	}
}

// Counts returns the counters, and the error of the recording that failed last, if any fails.
func (r *Recorder) Counts() (Counts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	for _, t := range r.tracks {
		if s := t.stats.Load(); s != nil {
			c.add(*s)
		}
		if t.isFailing.Load() {
			c.Failing++
		}
	}
	if c.Failing == 0 {
		return c, nil
	}
	return c, r.lastErr
}

func (c *Counts) add(s past.Stats) {
	c.Appended += s.Appended
	c.Missing += s.Missing
	c.Written += s.Written
	c.Syncs += s.Syncs
}

// trim applies the budgets, at most once in trimEvery.
func (r *Recorder) trim() {
	r.mu.Lock()
	due := r.cfg.Budgets != past.Policy{} && time.Since(r.trimmed) >= trimEvery
	if due {
		r.trimmed = time.Now()
	}
	r.mu.Unlock()
	if !due {
		return
	}
	trimmed, err := r.cfg.Store.Trim(r.cfg.Budgets)
	if err != nil {
		r.cfg.Log.Warn().Err(err).Msg("old recordings not deleted")
	}
	if trimmed.Segments > 0 {
		r.cfg.Log.Info().Int("segments", trimmed.Segments).Int64("bytes", trimmed.Bytes).Msg("old recordings deleted")
	}
}

// A track is the recording of one session.
type track struct {
	recorder *Recorder
	source   Source
	mode     past.Mode
	life     past.Life
	ring     *ring.Ring
	log      zerolog.Logger

	wake        chan struct{} // the ring or the Meta has changed
	stop        chan struct{} // closed by end
	once        sync.Once
	isForgotten atomic.Bool
	isFailing   atomic.Bool
	stats       atomic.Pointer[past.Stats] // of writer

	// Owned by run.
	writer  *past.Writer // nil while the files are closed
	tries   int          // steps in a row that left output out, although no more came
	triedAt uint64       // end of the output at the last of them
	isWhole bool         // the last keyframe in the files includes the history
	buf     []byte
}

func (t *track) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *track) end() { t.once.Do(func() { close(t.stop) }) }

// run records until the output is complete, or end was called.
func (t *track) run() {
	defer t.leave()
	syncAt, closeAt := stopped(), stopped()
	defer syncAt.Stop()
	defer closeAt.Stop()
	isPending := false // syncAt runs
	for {
		select {
		case <-t.wake:
			if t.mode == past.Full && !t.isFailing.Load() {
				t.do(t.copyOutput)
			}
			if !isPending {
				isPending = true
				if t.isFailing.Load() {
					syncAt.Reset(t.recorder.cfg.Retry)
				} else {
					syncAt.Reset(t.recorder.cfg.Sync)
				}
			}
		case <-syncAt.C:
			isPending = false
			t.do(t.store)
			if t.isFailing.Load() || t.triesAgain() {
				t.poke()
				continue
			}
			if t.isComplete() {
				return
			}
			t.recorder.trim()
			closeAt.Reset(closeAfter)
		case <-closeAt.C:
			t.do(t.finish)
		case <-t.stop:
			if !t.isForgotten.Load() {
				t.do(t.store)
			}
			return
		}
	}
}

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// do does one step of the recording. If it fails, the files are closed, and the next step opens
// them again.
func (t *track) do(step func() error) {
	r := t.recorder
	r.turns <- struct{}{}
	err := t.open()
	if err == nil {
		err = step()
	}
	t.count()
	if err != nil {
		t.close()
	}
	<-r.turns
	switch failed := t.isFailing.Swap(err != nil); {
	case err != nil && !failed:
		r.mu.Lock()
		r.counts.Failures++
		r.lastErr = err
		r.mu.Unlock()
		t.log.Error().Err(err).Msg("session is not recorded; it continues, and its recording is tried again")
		if r.cfg.Failed != nil {
			r.cfg.Failed(t.life, err)
		}
	case err == nil && failed:
		t.log.Info().Msg("session is recorded again")
	}
}

// open opens the files, unless they are open.
func (t *track) open() error {
	if t.writer != nil {
		return nil
	}
	w, err := t.recorder.cfg.Store.OpenWriter(t.life, t.mode)
	if err != nil {
		return err
	}
	t.writer, t.isWhole = w, false
	if w.End() == 0 { // the session may begin with the screen of an earlier instance
		if err := t.keyframe(false); err != nil {
			return err
		}
	}
	if start, _, _ := t.ring.Bounds(); start <= w.End() {
		return w.Resize(w.End(), t.ring.SizeAt(w.End()))
	}
	return nil
}

func (t *track) close() {
	if t.writer == nil {
		return
	}
	if err := t.writer.Close(); err != nil && !t.isFailing.Load() {
		t.log.Warn().Err(err).Msg("recording not closed cleanly")
	}
	t.writer, t.buf = nil, nil
	if s := t.stats.Swap(nil); s != nil {
		t.recorder.mu.Lock()
		t.recorder.counts.add(*s)
		t.recorder.mu.Unlock()
	}
}

// count publishes the counters of the writer.
func (t *track) count() {
	if t.writer != nil {
		s := t.writer.Stats()
		t.stats.Store(&s)
	}
}

// store stores all that is new, durably.
func (t *track) store() error {
	if err := t.copyOutput(); err != nil {
		return err
	}
	if err := t.writer.Sync(); err != nil {
		return err
	}
	return t.writer.SetMeta(t.source.Meta())
}

// finish completes the recording of a session that has fallen silent, and closes the files.
func (t *track) finish() error {
	if !t.isWhole {
		if err := t.keyframe(true); err != nil {
			return err
		}
	}
	if err := t.store(); err != nil {
		return err
	}
	t.count()
	t.close()
	return nil
}

// copyOutput appends the output that the writer does not have, with the changes of size. If that is
// more than the mode Screen keeps behind a keyframe, the screen is stored instead.
func (t *track) copyOutput() error {
	for range 2 {
		if t.writer.KeyframeDue() {
			if err := t.keyframe(false); err != nil {
				return err
			}
			if t.mode == past.Screen && t.writer.KeyframeDue() {
				return nil // the session could make no keyframe, and output without one is of no use
			}
		}
		_, end, _ := t.ring.Bounds()
		if err := t.copyTo(end); err != nil {
			return err
		}
		if t.mode == past.Full || !t.writer.KeyframeDue() {
			return nil
		}
	}
	return nil
}

// keyframe stores the screen, if the session can save one that is not older than the output
// stored.
func (t *track) keyframe(lines bool) error {
	frame, err := t.source.Frame(t.writer.End(), lines)
	if err != nil {
		return nil // the session is busy, or has no screen any more; the next step tries again
	}
	if frame.Offset < t.writer.End() || len(frame.Data) == 0 {
		return nil
	}
	if t.mode == past.Full {
		if err := t.copyTo(frame.Offset); err != nil {
			return err
		}
	}
	if err := t.writer.Resize(frame.Offset, t.ring.SizeAt(frame.Offset)); err != nil {
		return err
	}
	if err := t.writer.Keyframe(frame.Offset, frame.Data); err != nil {
		return err
	}
	t.isWhole = frame.IsWhole
	return nil
}

// copyTo appends the output up to an offset.
func (t *track) copyTo(end uint64) error {
	if t.buf == nil {
		t.buf = make([]byte, readBytes)
	}
	for at := t.writer.End(); at < end; at = t.writer.End() {
		n := min(uint64(len(t.buf)), end-at)
		mark, isResized := t.ring.NextMark(at)
		if isResized {
			n = min(n, mark.Offset-at)
		}
		k, err := t.ring.ReadAt(t.buf[:n], at)
		if errors.Is(err, ring.ErrGone) { // the ring has overwritten it: continue behind the gap
			start, _, _ := t.ring.Bounds()
			if err := t.writer.Resize(start, t.ring.SizeAt(start)); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := t.writer.Append(at, t.buf[:k]); err != nil {
			return err
		}
		if isResized && at+uint64(k) == mark.Offset {
			if err := t.writer.Resize(mark.Offset, mark.Size); err != nil {
				return err
			}
		}
	}
	return nil
}

// isComplete reports whether the session prints nothing any more and all of it is stored.
func (t *track) isComplete() bool {
	_, end, finished := t.ring.Bounds()
	return finished && t.source.Meta().Exit != nil && t.writer != nil && t.writer.End() >= end
}

// triesAgain reports whether the next step must come although the session prints nothing, because
// it could not save its screen. A screen that is lost never can, so there are maxTries such steps.
func (t *track) triesAgain() bool {
	_, end, _ := t.ring.Bounds()
	isBehind := t.writer.End() < end || t.mode == past.Screen && t.writer.KeyframeDue()
	if !isBehind || end != t.triedAt {
		t.tries, t.triedAt = 0, end
	}
	t.tries++
	return isBehind && t.tries <= maxTries
}

// leave ends the recording.
func (t *track) leave() {
	t.ring.Unwatch(t.wake)
	t.source.Release()
	t.close()
	r := t.recorder
	r.mu.Lock()
	delete(r.tracks, t.life)
	r.mu.Unlock()
	if t.isForgotten.Load() {
		r.erase(t.life)
	}
}
