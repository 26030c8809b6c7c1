package session

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"holdfast/shared/escseq"
	"holdfast/shared/logging"
	"holdfast/shared/rawio"
	"holdfast/supervisor/internal/screen"
)

// An adopted session serves its clients at once. Its screen is restored meanwhile, one slice at
// a time, from the keyframe and the output after it. A request that needs the screen before has
// to wait until the restoration is finished.

const (
	// restoreSlice is the work of one step, in bytes: less than a millisecond.
	restoreSlice = 64 << 10
	// restoreAfter delays the restorations, so that clients can attach again before.
	restoreAfter = 250 * time.Millisecond
)

// restoration is owned by loop. It has three stages: first it has neither from nor screen, then
// from reads the keyframe, and at last screen reads the output after the keyframe.
type restoration struct {
	offset      uint64 // the screen in the keyframe was at this offset
	from        *screen.Restorer
	screen      *screen.Screen
	answeredTo  uint64 // queries in output before this offset have been answered
	scannedTo   uint64 // output before this offset holds no unanswered query
	publishedTo uint64 // shell marks and events in output before this offset were published

	isDropped bool          // the display has dropped the screen at publishedTo; it is restored when it is used, as it was there
	erased    screen.Erased // of the dropped screen

	urgent bool // it cannot wait (isUrgent), so loop does it before it receives more output

	resized bool // the size, in cells or pixels, has changed since, and the program was not notified on its terminal
}

// at returns the offset up to which the output has been restored.
func (r *restoration) at() uint64 {
	if r.screen != nil {
		return r.screen.Offset()
	}
	return r.offset
}

// isUrgent reports whether the restoration of output up to end cannot wait. It cannot if the
// ring would soon overwrite output that is still needed, or if the output may contain a query
// that the session must answer. answers tells whether the session answers queries now.
func (d *display) isUrgent(end uint64, answers bool) bool {
	r := d.restoring
	at := r.at()
	if end-min(end, at) >= uint64(d.ring.Keep()/frameShare) {
		return true
	}
	from := max(at, r.scannedTo)
	r.scannedTo = end
	if !answers {
		return false
	}
	for from < end {
		p := d.ring.View(from, int(end-from))
		if bytes.IndexByte(p, escseq.ESC) >= 0 {
			return true
		}
		from += uint64(len(p))
	}
	return false
}

// mustRestore reports whether the restoration must be finished before output up to end is written.
// If it only cannot wait, the restoration becomes urgent, and loop continues it in turns. A suspect
// screen may have to wait for other suspects, which it must not do while it holds a turn, so it must
// be finished at once.
//
// A dropped screen must be restored at once, because nothing else restores it.
func (d *display) mustRestore(end uint64, answers bool) bool {
	if d.isDropped() {
		return true
	}
	if !d.isUrgent(end, answers) {
		return false
	}
	if d.restoreTries == 0 {
		d.restoring.urgent = true
		return false
	}
	return true
}

// drop frees the screen if the keyframe and the ring make exactly this screen, as they do for a successor. The first use
// restores it. A screen stays if it has what no keyframe has: the position of a reader of changes. It stays also if it has pictures, because
// to decode them costs much.
func (d *display) drop() bool {
	isKept := d.ringSuffices() || d.keyframe.isWhole && d.sinceKeyframe() == 0
	if d.restoring != nil || d.saved.Degraded || !isKept || d.isBehind() || d.hasPictures() || d.screen.HasReader() {
		return false
	}
	end := d.screen.Offset()
	d.saved.Title, d.saved.Cwd = d.titles()
	d.restoring = &restoration{offset: d.keyframe.offset, answeredTo: end, scannedTo: end, publishedTo: end, isDropped: true, erased: d.screen.Erased()}
	d.screen = nil
	d.cfg.trimmer.request()
	return true
}

// isDropped reports whether the screen was dropped and is not restored yet.
func (d *display) isDropped() bool { return d.restoring != nil && d.restoring.isDropped }

// emptyScreen returns a screen without content at the start of the ring.
func (d *display) emptyScreen() *screen.Screen {
	start, _, _ := d.ring.Bounds()
	sc := screen.New(d.ring.SizeAt(start), d.spec.ScrollbackLines)
	sc.Skip(start)
	return sc
}

// restoreStep does one step of the restoration and reports whether the restoration is finished. It
// first saves the number of tries. If the supervisor dies during the step, its successor knows that
// this screen may be the cause.
func (d *display) restoreStep() (done bool) {
	r := d.restoring
	if r == nil {
		return true
	}
	if d.restoreTries > 0 {
		defer d.cfg.suspects.waitTurn()()
	}
	d.saveRestoreTries(d.restoreTries + 1)
	d.use(func() { d.step(r) })
	d.saveRestoreTries(d.restoreTries)
	if d.restoring != nil {
		return false
	}
	if !d.saved.Degraded {
		d.onRestored()
	}
	return true
}

// finishRestore finishes the restoration, and yields to other goroutines between the steps.
func (d *display) finishRestore() {
	for d.restoring != nil {
		d.restoreStep()
		rawio.Yield()
	}
}

// restoreDropped restores the screen if it was dropped. It must be called before a change of which the restoration must not know,
// such as one of the size.
func (d *display) restoreDropped() {
	if d.isDropped() {
		d.finishRestore()
	}
}

func (d *display) step(r *restoration) {
	switch {
	case r.screen != nil:
	case r.from == nil:
		d.readKeyframe(r)
		return
	default:
		if r.from.Step(restoreSlice) {
			r.screen, r.from = r.from.Screen(), nil
			if r.screen.Offset() <= r.publishedTo {
				r.screen.Events() // they waited when the keyframe was written, and were published later
			}
		}
		return
	}
	start, end, _ := d.ring.Bounds()
	if r.isDropped {
		end = r.publishedTo
	}
	at := r.screen.Offset()
	if at < start {
		d.log.Error().Uint64(logging.Bytes, start-at).Msg("ring has overtaken the keyframe; the screen misses output")
		r.screen.Skip(start)
		at = start
	}
	if size := d.ring.SizeAt(at); size != r.screen.Size() {
		r.screen.Resize(size)
		r.screen.Replies() // the program was notified of this size
	}
	if at < end {
		d.replay(r, at, end)
		return
	}
	r.screen.SetAppearance(*d.appearance)
	r.screen.Replies() // the program was notified of the size in pixels
	if r.isDropped {
		r.screen.SetErased(r.erased)
	}
	d.screen, d.restoring = r.screen, nil
	if r.resized {
		d.screen.ReportSize()
		d.answer(d.screen)
	}
	d.restoreTries = 0
}

// readKeyframe opens the keyframe. If the keyframe cannot be read, the screen is restored from
// the ring alone, for cells of the present size, because pictures depend on it.
func (d *display) readKeyframe(r *restoration) {
	frame, err := d.keyframe.Read()
	if err == nil {
		r.from, err = openFrame(frame, d.spec.ScrollbackLines)
	}
	if err != nil {
		d.log.Error().Err(err).Msg("keyframe unreadable; the screen is restored from the ring alone")
	}
	if r.from == nil {
		r.screen = d.emptyScreen()
		r.screen.SetAppearance(*d.appearance)
	}
}

// replay writes one piece of output to the screen. The piece ends where the terminal's size
// changes, and at the offsets up to which queries were answered and shell marks were published.
func (d *display) replay(r *restoration, at, end uint64) {
	end = min(end, at+restoreSlice)
	if m, ok := d.ring.NextMark(at); ok {
		end = min(end, m.Offset)
	}
	if at < r.answeredTo {
		end = min(end, r.answeredTo)
	}
	if at < r.publishedTo {
		end = min(end, r.publishedTo)
	}
	for budget := pieceCost; at < end && budget > 0; {
		p := d.ring.View(at, int(end-at))
		if i := bytes.Index(p[1:], []byte(shellMarkPrefix)); i >= 0 { // a prompt's offset is the start of its piece, so each shell mark must begin a new piece
			p = p[:1+i]
		}
		budget -= r.screen.WriteSome(p, budget)
		at = r.screen.Offset()
	}
	if at <= r.publishedTo {
		r.screen.Heard()  // already published and counted
		r.screen.Events() // already published, or too old
	}
	if at > r.answeredTo {
		d.answer(r.screen)
	} else {
		r.screen.Replies()
	}
}

// shellMarkPrefix begins the shell marks for prompts and commands (OSC 133).
const shellMarkPrefix = "\x1b]133;"

// Words of the state slate, beside its content.
const (
	wordExit         = iota // exit status of the child (exitWord), saved before the child is reaped
	wordAnswered            // offset up to which queries have been answered
	wordRestoreTries        // how often supervisors died while they restored the screen, and 1 more during a try
	wordDoubted             // 1 if the recording must write its segment again (past.Store.IsDoubted)
)

// maxRestoreTries is how often supervisors may die while they restore a screen until the screen
// is given up, because restoring it may be the cause.
const maxRestoreTries = 3

// saveRestoreTries saves how many restorations were begun and not finished.
func (d *display) saveRestoreTries(n uint64) {
	if err := d.words.SetWord(wordRestoreTries, n); err != nil {
		d.log.Error().Err(err).Msg("number of restore attempts not saved")
	}
}

// suspectAfter is how long a supervisor must serve before it restores a suspect screen, which
// is one at which a predecessor may have died. If a supervisor dies early for another reason,
// the screen is then not blamed.
const suspectAfter = 2 * time.Second

// suspects lets the suspect screens of a table be restored only one at a time, so that each
// death is attributed to one screen.
type suspects struct {
	mu      sync.Mutex
	startAt time.Time // when this supervisor has served for suspectAfter
}

// waitTurn waits until a slice of a suspect screen may be restored. leave must be called after
// it.
func (a *suspects) waitTurn() (leave func()) {
	time.Sleep(time.Until(a.startAt))
	a.mu.Lock()
	return a.mu.Unlock
}

// openRestore prepares the restoration of an adopted session. If another program has given up
// the screen, or this program before an upgrade, the screen is tried once more, from the ring.
// A screen that was being restored at the deaths of maxRestoreTries supervisors is given up.
//
// Shell marks and bells before scannedTo were published. openRestore returns the offset up to which
// they count as published.
func (d *display) openRestore(h Heritage, scannedTo uint64) (uint64, error) {
	again := d.saved.Degraded && (h.Own || d.saved.GivenUpBy != d.cfg.Program)
	if d.saved.Degraded && !again {
		d.setEmptyScreen()
		return scannedTo, nil
	}
	answered, err := d.words.Word(wordAnswered)
	if err != nil {
		return scannedTo, err
	}
	if h.Crashed {
		if d.restoreTries, err = d.words.Word(wordRestoreTries); err != nil {
			return scannedTo, err
		}
	}
	_, end, _ := d.ring.Bounds()
	scannedTo = min(scannedTo, end)
	if again {
		d.saved.Degraded, d.restoreTries = false, maxRestoreTries-1
		answered, scannedTo = end, end // queries and shell marks of that time are too old to be answered or published
	}
	offset, ok, err := d.keyframe.readOffset()
	if err != nil {
		return scannedTo, err
	}
	if d.restoreTries >= maxRestoreTries {
		d.lose(fmt.Sprintf("supervisors died %d times while they restored the screen", d.restoreTries), nil)
		return scannedTo, nil
	}
	d.restoring = &restoration{answeredTo: answered, scannedTo: end, publishedTo: scannedTo}
	if ok {
		d.restoring.offset, d.keyframe.offset = offset, offset
	}
	return scannedTo, nil
}
