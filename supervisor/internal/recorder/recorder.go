// Package recorder copies the output of sessions to the store on disk (package past), so that a
// session can be shown, and started again, after the machine has lost power.
//
// Invariant: a session never waits for its recording. The recorder reads the session's ring at
// an offset of its own, as a viewer does. If the disk is slower than the output, or fails, the
// output that is missing on disk is recorded as a gap.
//
// Invariant: the recorder writes no byte and wakes no goroutine for a session that prints no output
// and does not change.
//
// Not here: the files (package past), and which sessions are recorded (package session).
package recorder

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/shared/logging"
	"holdfast/shared/mask"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/ring"
)

const (
	// defaultSync is the default of Config.Sync.
	defaultSync = time.Second
	// defaultRetry is the default of Config.Retry.
	defaultRetry = 10 * time.Second
	// defaultIdle is the default of Config.Idle.
	defaultIdle = 10 * time.Second
	// maxTries bounds the steps in which a silent session is asked for its screen in vain.
	maxTries = 10
	// trimEvery is the shortest time between two checks of the budgets.
	trimEvery = time.Minute
	// diskTurns is how many recordings may wait for the disk at a time. Each of them occupies a
	// thread of the operating system.
	diskTurns = 4
	// maxMarks bounds the shell marks of a session that wait to be stored. If there are more, the
	// oldest are dropped.
	maxMarks = 512
	// maxErasing bounds the forgotten lives with files that the recorder tries again to erase, because
	// the disk has failed. It tries further lives only once.
	maxErasing = 1024
	// readBytes is how much is copied from a ring at a time.
	readBytes = 128 << 10
)

// Config configures a recorder. A zero field means its default.
type Config struct {
	Store   *past.Store
	Sync    time.Duration // output is durable after this time at the latest; default 1 s
	Retry   time.Duration // a recording that has failed is tried again after this time; default 10 s
	Idle    time.Duration // the files of a session that prints nothing are closed after this time; default 10 s
	Budgets past.Policy
	Log     zerolog.Logger
}

// A Source is a session that is recorded. Its methods may be called by any goroutine.
type Source interface {
	Life() past.Life
	// Ring returns the ring with the output. It stays open until Release is called.
	Ring() *ring.Ring
	// Frame returns a saved screen at an offset of at least after, if the session can make one
	// now. If lines is true, the screen must include the history.
	Frame(after uint64, lines bool) (Frame, error)
	// Meta returns the present content of meta.json. It may read /proc.
	Meta() past.Meta
	// Clears returns how often lines were cleared for good, as Meta.Clears.
	Clears() uint64
	// Masker returns the masker of the output, or nil if the session has no secrets. The results of
	// Frame and Meta, and the marks, must be masked already.
	Masker() *mask.Masker
	// SetDoubted saves past.Store.IsDoubted for the program that continues the recording. It may be called after Release.
	SetDoubted(isDoubted bool)
	// IsDoubted returns what SetDoubted has saved last, also in an earlier program.
	IsDoubted() bool
	// Failed is called when the recording begins to fail, and with nil when it has resumed. It
	// must return soon.
	Failed(err error)
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
	turns chan []byte // diskTurns buffers of readBytes, or nil; a step that uses the disk takes one meanwhile
	all   sync.WaitGroup
	stop  chan struct{} // closed by Close

	mu       sync.Mutex
	tracks   map[past.Life]*track
	paused   chan struct{}                  // closed when the pause ends; nil: there is none
	erasing  map[past.Life]chan struct{}    // forgotten lives; closed and removed when the store has forgotten them, too
	changing map[past.Life]func(*past.Meta) // changes that ChangeMeta has not stored yet; nil while one is being stored
	isClosed bool
	trimmed  time.Time
	counts   Counts // of the writers that are closed
	lastErr  error
}

// New returns a recorder without sessions.
func New(cfg Config) *Recorder {
	cfg.Sync, cfg.Retry, cfg.Idle = cmp.Or(cfg.Sync, defaultSync), cmp.Or(cfg.Retry, defaultRetry), cmp.Or(cfg.Idle, defaultIdle)
	r := &Recorder{
		cfg: cfg, turns: make(chan []byte, diskTurns), stop: make(chan struct{}),
		tracks: make(map[past.Life]*track), erasing: make(map[past.Life]chan struct{}), changing: make(map[past.Life]func(*past.Meta)),
	}
	for range diskTurns {
		r.turns <- nil
	}
	return r
}

// logger returns a log that names a session.
func (r *Recorder) logger(l past.Life) zerolog.Logger {
	return r.cfg.Log.With().Str(logging.Session, string(l.ID)).Str(logging.Instance, string(l.Instance)).Logger()
}

// Add begins to record a session in the given mode, or continues the recording that an earlier
// program has begun. It returns without waiting for the disk. The recording ends when the ring
// is finished and all of it is stored. Add after that stores the Meta again.
func (r *Recorder) Add(s Source, mode past.Mode) {
	t := &track{
		recorder: r, source: s, mode: mode, life: s.Life(), ring: s.Ring(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}), renewals: make(chan renewal),
		pace: newPace(r.cfg.Sync), log: r.logger(s.Life()),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.tracks[t.life]; old != nil || r.isClosed {
		s.Release()
		if old != nil {
			old.poke()
		}
		return
	}
	if t.isDoubted = s.IsDoubted(); t.isDoubted {
		r.cfg.Store.Doubt(t.life)
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

// Store returns the store in which the recorder stores sessions.
func (r *Recorder) Store() *past.Store { return r.cfg.Store }

// Mark stores a shell mark of a session with its next output, if the session is recorded.
func (r *Recorder) Mark(l past.Life, m past.Note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tracks[l]; t != nil {
		t.addMark(m)
		t.poke()
	}
}

// Forget ends the recording of a life and erases its files. It returns without waiting for the
// disk. If the disk fails, Forget tries again until the recorder is closed.
func (r *Recorder) Forget(l past.Life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.erasing[l] != nil {
		return
	}
	r.erasing[l] = make(chan struct{})
	if t := r.tracks[l]; t != nil {
		t.isForgotten.Store(true)
		t.end()
	} else if !r.isClosed {
		r.all.Go(func() { r.erase(l) })
	}
}

// ChangeMeta changes the stored Meta of a life that is not recorded any more. It returns without waiting for the
// disk. If a change has not been stored when the next one is passed, only the next one is stored.
func (r *Recorder) ChangeMeta(l past.Life, change func(*past.Meta)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, isRunning := r.changing[l]
	if r.isClosed || r.erasing[l] != nil {
		return
	}
	r.changing[l] = change
	if !isRunning {
		r.all.Go(func() { r.storeChanges(l) })
	}
}

// storeChanges stores the changes of a Meta, until there is no further one.
func (r *Recorder) storeChanges(l past.Life) {
	for {
		r.mu.Lock()
		change := r.changing[l]
		r.changing[l] = nil
		if change == nil {
			delete(r.changing, l)
		}
		r.mu.Unlock()
		if change == nil {
			return
		}
		if err := r.onDisk(func() error { return r.cfg.Store.ChangeMeta(l, change) }); err != nil {
			log := r.logger(l)
			log.Error().Err(err).Msg("description of a lost session not stored; a later supervisor has the old one")
		}
	}
}

// IsForgotten reports whether a life is forgotten, although the store may still have it.
func (r *Recorder) IsForgotten(l past.Life) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.erasing[l] != nil
}

// AwaitErased waits until the store has forgotten the lives that were passed to Forget and that
// isMeant selects, or until a time is over. It returns those that the store may still have.
func (r *Recorder) AwaitErased(within time.Duration, isMeant func(past.Life) bool) (left []past.Life) {
	r.mu.Lock()
	pending := maps.Clone(r.erasing)
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for l, done := range pending {
		if !isMeant(l) {
			continue
		}
		select {
		case <-done:
		case <-ctx.Done():
			left = append(left, l)
		}
	}
	return left
}

// erase makes the store forget a life, and erases its files.
func (r *Recorder) erase(l past.Life) {
	log := r.logger(l)
	for tries := 0; ; tries++ {
		if err := r.onDisk(func() error { return r.cfg.Store.Forget(l) }); err == nil {
			break
		} else if tries == 0 {
			log.Error().Err(err).Msg("recording of a forgotten session not erased; the erasure is tried again")
		}
		if !r.mayRetry() {
			log.Error().Msg("recording of a forgotten session stays; after a reboot the session may be listed as lost")
			break
		}
		select {
		case <-time.After(r.cfg.Retry):
		case <-r.stop:
			return
		}
	}
	r.mu.Lock()
	close(r.erasing[l])
	delete(r.erasing, l)
	r.mu.Unlock()
	if err := r.onDisk(r.cfg.Store.Sweep); err != nil {
		log.Warn().Err(err).Msg("files of forgotten sessions not erased; the next erasure tries it again")
	}
}

func (r *Recorder) mayRetry() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.erasing) <= maxErasing
}

// onDisk calls f when it may use the disk.
func (r *Recorder) onDisk(f func() error) error {
	buf := r.takeTurn()
	defer func() { r.turns <- buf }()
	return f()
}

// takeTurn returns a buffer of turns when its caller may use the disk.
func (r *Recorder) takeTurn() (buf []byte) {
	for {
		buf = <-r.turns
		r.mu.Lock()
		paused := r.paused
		r.mu.Unlock()
		if paused == nil {
			return buf
		}
		r.turns <- buf
		<-paused
	}
}

// Pause lets the steps end that use the disk, and begins no other one until resume is called. It fails after the given
// time, and then nothing is paused. Only one pause may be at a time.
func (r *Recorder) Pause(within time.Duration) (resume func(), err error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	paused, taken := make(chan struct{}), [][]byte{}
	setPaused := func(c chan struct{}) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.paused = c
	}
	setPaused(paused)
	resume = func() {
		setPaused(nil)
		close(paused)
		for _, buf := range taken {
			r.turns <- buf
		}
	}
	for range diskTurns {
		select {
		case buf := <-r.turns:
			taken = append(taken, buf)
		case <-timer.C:
			resume()
			return nil, errors.New("the disk with the recordings does not answer")
		}
	}
	return resume, nil
}

// Close ends all recordings after the output of the sessions is stored, or after the given
// time. The sessions may be recorded again by another Recorder, also of another process.
func (r *Recorder) Close(within time.Duration) error {
	r.mu.Lock()
	if !r.isClosed {
		close(r.stop)
	}
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
	var trimmed past.Trimmed
	if err := r.onDisk(func() (err error) { trimmed, err = r.cfg.Store.Trim(r.cfg.Budgets); return err }); err != nil {
		r.cfg.Log.Warn().Err(err).Msg("old recordings not deleted")
	}
	if trimmed.Segments > 0 {
		r.cfg.Log.Info().Int("segments", trimmed.Segments).Int64(logging.Bytes, trimmed.Bytes).Msg("old recordings deleted")
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
	ended       chan struct{} // closed when the recording has ended
	renewals    chan renewal
	once        sync.Once
	isForgotten atomic.Bool
	isFailing   atomic.Bool
	stats       atomic.Pointer[past.Stats] // of writer

	marksMu sync.Mutex
	marks   []past.Note // shell marks that are not stored yet, at most maxMarks

	// Owned by run.
	writer    *past.Writer // nil while the files are closed
	pace      pace         // of the steps that stored output
	tries     int          // steps in a row that could not store all output, although no more came
	triedAt   uint64       // end of the output at the last of them
	isWhole   bool         // the last keyframe in the files includes the history
	hasExit   bool         // the Meta in the files has the exit record
	isDoubted bool         // as the source has saved it
	clears    uint64       // of the source, when the files were renewed
	last      state        // the state that was stored last
	buf       []byte       // of Recorder.turns, during a step; allocated when a step needs it
	masked    maskedCopy
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
			if t.writer == nil && !t.isFailing.Load() && t.last == t.present() {
				continue
			}
			if t.mode == past.Full && !t.isFailing.Load() {
				_ = t.do(t.copyOutput)
			}
			if !isPending {
				isPending = true
				if t.isFailing.Load() {
					syncAt.Reset(t.recorder.cfg.Retry)
				} else {
					syncAt.Reset(t.pace.pause(t.recorder.cfg.Sync))
				}
			}
		case <-syncAt.C:
			isPending = false
			began := time.Now()
			_ = t.do(t.store)
			t.pace.note(time.Since(began))
			t.recorder.trim() // also after a failure, because the disk may be full
			if t.isFailing.Load() || t.triesAgain() {
				t.poke()
				continue
			}
			if t.isComplete() && t.complete() {
				return
			}
			closeAt.Reset(t.recorder.cfg.Idle)
		case <-closeAt.C:
			if t.do(t.finish) != nil {
				t.poke() // the next step stores again, and so begins the time until finish again
			}
		case wanted := <-t.renewals:
			wanted.done <- t.renewNow(wanted.clears)
		case <-t.stop:
			if !t.isForgotten.Load() {
				_ = t.do(t.store)
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

// do does one step of the recording. If it fails, do closes the files, and the next step
// opens them again. do logs and counts the first failure in a row and tells it to the session, so most
// callers may ignore the error that do returns.
func (t *track) do(step func() error) error {
	r := t.recorder
	t.buf = r.takeTurn()
	err := t.open()
	if err == nil {
		err = step()
	}
	t.count()
	t.saveDoubt()
	if err != nil {
		t.close()
	}
	r.turns <- t.buf
	t.buf = nil
	switch failed := t.isFailing.Swap(err != nil); {
	case err != nil && !failed:
		r.mu.Lock()
		r.counts.Failures++
		r.lastErr = err
		r.mu.Unlock()
		t.log.Error().Err(err).Msg("session is not recorded; it continues, and its recording is tried again")
		t.source.Failed(err)
	case err == nil && failed:
		t.log.Info().Msg("session is recorded again")
		t.source.Failed(nil)
	}
	return err
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
	if m, ok := w.Meta(); ok {
		t.clears = m.Clears
	} else if w.End() == 0 { // nothing is stored that could have been cleared
		t.clears = t.source.Clears()
	}
	if err := t.storeMeta(); err != nil { // a screen is of no use without it
		return err
	}
	if w.End() == 0 { // the session may begin with the screen of an earlier instance
		return t.keyframe(false)
	}
	return nil
}

// close closes the files.
func (t *track) close() {
	if t.writer == nil {
		return
	}
	if t.isForgotten.Load() {
		t.writer.Abandon()
	} else if err := t.writer.Close(); err != nil && !t.isFailing.Load() {
		t.log.Warn().Err(err).Msg("recording not closed cleanly")
	}
	t.saveDoubt()
	t.recorder.mu.Lock()
	t.stats.Store(nil)
	t.recorder.counts.add(t.writer.Stats())
	t.recorder.mu.Unlock()
	t.writer, t.masked = nil, maskedCopy{}
}

// count publishes the counters of the writer.
func (t *track) count() {
	if t.writer != nil {
		s := t.writer.Stats()
		t.stats.Store(&s)
	}
}

// saveDoubt saves a change of IsDoubted of the store.
func (t *track) saveDoubt() {
	if isDoubted := t.recorder.cfg.Store.IsDoubted(t.life); isDoubted != t.isDoubted {
		t.isDoubted = isDoubted
		t.source.SetDoubted(isDoubted)
	}
}

// store stores all that is new, durably.
func (t *track) store() error {
	if err := t.renew(); err != nil {
		return err
	}
	now := t.present()
	if err := t.copyOutput(); err != nil {
		return err
	}
	if err := t.releaseIfSilent(); err != nil {
		return err
	}
	if err := t.sync(); err != nil {
		return err
	}
	if err := t.storeMeta(); err != nil {
		return err
	}
	if t.clears == t.source.Clears() {
		t.last = now
	}
	return nil
}

// storeMeta stores the description of the session. It has the count of clears that the files have.
func (t *track) storeMeta() error {
	m := t.source.Meta()
	m.Clears = t.clears
	t.hasExit = m.Exit != nil
	return t.writer.SetMeta(m)
}

func (t *track) addMark(m past.Note) {
	t.marksMu.Lock()
	defer t.marksMu.Unlock()
	if len(t.marks) == maxMarks {
		t.marks = t.marks[1:]
	}
	t.marks = append(t.marks, m)
}

// sync stores the marks, and makes all that was appended durable. If that fails, for example because the disk is
// full, the marks are stored again by the next step. A mark that is stored twice counts once, but no mark may be stored
// before an earlier one, because a reader would take the earlier one for a repetition.
func (t *track) sync() (err error) {
	t.marksMu.Lock()
	marks := t.marks
	t.marks = nil
	t.marksMu.Unlock()
	for i := 0; i < len(marks) && err == nil; i++ {
		err = t.writer.Mark(marks[i].Offset, marks[i].Kind, marks[i].Text)
	}
	if err == nil {
		err = t.writer.Sync()
	}
	if err != nil {
		t.marksMu.Lock()
		defer t.marksMu.Unlock()
		t.marks = append(marks, t.marks...)
		t.marks = t.marks[max(0, len(t.marks)-maxMarks):]
	}
	return err
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
	t.close()
	return nil
}

// copyOutput appends the output that the writer does not have, with the changes of size. If that is
// more than the mode Screen keeps behind a keyframe, the screen is stored first.
func (t *track) copyOutput() error {
	_, end, _ := t.ring.Bounds()
	if t.writer.KeyframeDue() || end > t.writer.Capacity() {
		if err := t.keyframe(false); err != nil {
			return err
		}
		if t.mode == past.Screen && t.writer.KeyframeDue() {
			return nil // the session could make no keyframe, and output without one is of no use
		}
	}
	return t.copyTo(min(end, t.writer.Capacity()))
}

// keyframe stores a screen of the session. The screen may be older than the end of the output, but by
// at most CapsuleBytes, because the mode Screen stores no more output after a keyframe. If the session
// has no screen now, or only one that is older than the stored output, keyframe stores none.
func (t *track) keyframe(lines bool) error {
	if err := t.release(); err != nil {
		return err
	}
	_, end, _ := t.ring.Bounds()
	frame, err := t.source.Frame(max(t.writer.End(), end-min(end, past.CapsuleBytes)), lines)
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
		if err := t.release(); err != nil {
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
	// The terminal may have been resized since all output before was copied. NextMark does not return
	// such a mark, because it is not behind the writer's end.
	if start, _, _ := t.ring.Bounds(); start <= t.writer.End() {
		if t.ring.SizeAt(t.copied()) != t.ring.SizeAt(t.writer.End()) {
			if err := t.release(); err != nil {
				return err
			}
		}
		if err := t.writer.Resize(t.writer.End(), t.ring.SizeAt(t.writer.End())); err != nil {
			return err
		}
	}
	for at := t.copied(); at < end; at = t.copied() {
		n := min(uint64(len(t.buf)), end-at)
		mark, isResized := t.ring.NextMark(at)
		if isResized {
			n = min(n, mark.Offset-at)
		}
		k, err := t.ring.ReadAt(t.buf[:n], at)
		if errors.Is(err, ring.ErrGone) { // the ring has overwritten it: continue behind the gap
			if err := t.release(); err != nil {
				return err
			}
			start, _, _ := t.ring.Bounds()
			if err := t.writer.Resize(start, t.ring.SizeAt(start)); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := t.append(at, t.buf[:k]); err != nil {
			return err
		}
		if isResized && at+uint64(k) == mark.Offset {
			if err := t.release(); err != nil {
				return err
			}
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
	return finished && t.hasExit && t.writer != nil && t.writer.End() >= end
}

// triesAgain reports whether another step is due although the session prints no output: the session
// could not save its screen, and may be able to later. If its screen is lost, it never will, so
// triesAgain permits only maxTries such steps.
func (t *track) triesAgain() bool {
	_, end, _ := t.ring.Bounds()
	isBehind := t.writer.End() < end || t.clears != t.source.Clears() || t.mode == past.Screen && t.writer.KeyframeDue()
	if !isBehind || end != t.triedAt {
		t.tries, t.triedAt = 0, end
	}
	t.tries++
	return isBehind && t.tries <= maxTries
}

// complete closes the files, and removes the recording from those of the recorder, unless the Meta has changed since
// it was stored. It reports whether it has done so. Until then, Add and Poke find this track.
func (t *track) complete() bool {
	t.close()
	r := t.recorder
	for {
		r.mu.Lock()
		if len(t.wake) == 0 {
			delete(r.tracks, t.life)
			r.mu.Unlock()
			return true
		}
		r.mu.Unlock()
		<-t.wake
		if t.last != t.present() {
			t.poke()
			return false
		}
	}
}

// leave ends the recording.
func (t *track) leave() {
	t.ring.Unwatch(t.wake)
	t.source.Release()
	t.close()
	r := t.recorder
	r.mu.Lock()
	if r.tracks[t.life] == t { // otherwise complete has removed it, and another one may have its place
		delete(r.tracks, t.life)
	}
	r.mu.Unlock()
	close(t.ended)
	if t.isForgotten.Load() {
		r.erase(t.life)
	}
}
