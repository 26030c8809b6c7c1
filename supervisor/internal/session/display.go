package session

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/shared/rawio"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/slate"
)

// display draws the output of a session. It writes the ring's bytes to the screen, restores the
// screen after an adoption (restore.go), and saves it in keyframes (keyframe.go). loop owns it.
//
// A display continues without a screen in two cases: for a short time while a successor restores
// the screen, and for good after the terminal core has panicked. Child, viewers and output are not
// affected in either case.
//
// A display publishes no event and sends no input. Events, bells and shell marks stay in the screen
// until the session takes them.
type display struct {
	*identity
	*outdated
	cfg        *Config // its Vault, ReportDir and Program, and the parts that all sessions share
	log        *zerolog.Logger
	ring       *ring.Ring
	words      *slate.Slate         // has the words of restore.go
	saved      *displayState        // in the session's savedState
	appearance *protocol.Appearance // of the terminal, in the session's savedState
	answer     func(*screen.Screen) // takes the screen's replies to queries; called after each piece of output, before the next resize
	onLost     func()               // called after the screen was lost
	onRestored func()               // called after the screen was restored

	screen        *screen.Screen // nil while restoring is set, also after drop; use it within use
	received      uint64         // end offset of the output that must be on the screen
	lastWasCostly bool           // the last output written to the screen has cost cheapCost or more
	isLast        bool           // the child has ended, so lastBudget applies
	lastBudget    int            // cost that may still be spent on output after the child has ended; see lastCost
	restoring     *restoration   // nil once the session has a screen
	restoreTries  uint64         // how often supervisors died while they restored the screen
	keyframe      keyframe
	isFromRing    bool   // the output since offset 0 and the ring's resize marks make exactly this screen; see ringSuffices
	cost          int    // cost of all output since then
	resizes       int    // resize marks since then
	resizedAt     uint64 // offset of the last one
	frameBytes    int    // length of the last keyframe that was not stored
	packedTo      uint64 // end offset of the output when packOld was called last
}

// displayState is the part of a display that a successor needs, besides the keyframe.
type displayState struct {
	Title     string `json:"title,omitempty"`       // valid while the session has no usable screen
	Cwd       string `json:"cwd,omitempty"`         // as Title
	Degraded  bool   `json:"degraded,omitempty"`    // the screen is lost, and an empty one is in its place
	GivenUpBy string `json:"given_up_by,omitempty"` // the Config.Program that lost the screen
}

// use calls f, which may use the screen. If f panics, only the screen of this session is lost,
// because a panic there is a defect of the terminal core.
func (d *display) use(f func()) {
	defer func() {
		if p := recover(); p != nil {
			d.lose(p, debug.Stack())
		}
	}()
	f()
}

// useRestored finishes the restoration of the screen and then calls f, which may use the screen.
func (d *display) useRestored(f func(*screen.Screen)) {
	d.finishRestore()
	d.use(func() {
		d.screen.SetMasker(d.masker)
		f(d.screen)
	})
}

// lose writes a report about a panic of the terminal core and replaces the screen by an empty one
// for good.
func (d *display) lose(why any, stack []byte) {
	from := uint64(0)
	if d.screen != nil {
		from = d.screen.Offset()
	}
	d.log.Error().Uint64("offset", from).Bytes("stack", stack).Msgf("screen lost because of a defect of the terminal core: %v", why)
	d.report(why, stack, from)
	d.saved.Title, d.saved.Cwd = d.titles()
	d.restoring, d.saved.Degraded, d.saved.GivenUpBy, d.isFromRing = nil, true, d.cfg.Program, false
	d.setEmptyScreen()
	d.onLost()
}

// setEmptyScreen replaces the lost screen by an empty one that skips all output so far.
func (d *display) setEmptyScreen() {
	_, end, _ := d.ring.Bounds()
	d.screen = screen.New(d.terminalSize(), 0)
	d.screen.Skip(end)
}

// terminalSize returns the present size of the terminal.
func (d *display) terminalSize() protocol.Size {
	_, end, _ := d.ring.Bounds()
	return d.ring.SizeAt(end)
}

// shownTo returns the offset up to which the screen contains the output. While the screen of an
// adopted session is being restored this is the end of the ring, because each user of the screen
// waits for the restoration.
func (d *display) shownTo() uint64 {
	if d.isDropped() {
		return d.restoring.publishedTo
	}
	if d.restoring != nil {
		_, end, _ := d.ring.Bounds()
		return end
	}
	return d.screen.Offset()
}

// shownSize returns the size of the screen's content. It differs from the terminal's size while
// the screen has not reached the last resize.
func (d *display) shownSize() protocol.Size {
	if d.restoring != nil || d.saved.Degraded {
		return d.terminalSize()
	}
	return d.screen.Size()
}

// titles returns the window title and the directory that the program has reported.
func (d *display) titles() (title, cwd string) {
	if d.restoring != nil || d.saved.Degraded || d.screen == nil {
		return d.saved.Title, d.saved.Cwd
	}
	return d.screen.Title(), d.screen.Cwd()
}

// firstOpenLine returns the number of the first line that is not complete, or 0 if there is no
// screen to ask.
func (d *display) firstOpenLine() (n uint64) {
	if d.restoring == nil && !d.saved.Degraded {
		d.use(func() { n = d.screen.Line() })
	}
	return n
}

// setAppearance tells the screen the appearance of the terminal, which programs may query.
func (d *display) setAppearance(look protocol.Appearance) {
	if d.restoring != nil { // the restored screen receives the appearance at the end of the restoration
		d.restoring.resized = true
		return
	}
	d.use(func() { d.screen.SetAppearance(look) })
	d.answer(d.screen) // the program may have asked to be notified of the size in pixels
}

// receive notes n bytes of output at offset. It reports whether the session must write them to the
// screen now, up to cheapCost. If the output before them was costly, they wait for a turn of
// Config.costlyTurns.
func (d *display) receive(c chunk) (end uint64, now bool) {
	d.received = c.offset + uint64(c.n)
	d.lastBudget += lastPerByte * c.n
	if d.isDropped() {
		d.restoring.urgent = true
	}
	return d.received, !d.lastWasCostly && !d.isDropped()
}

// expectEnd bounds the cost of the remaining output, because the child has ended.
func (d *display) expectEnd() { d.isLast, d.lastBudget = true, lastCost }

// isBehind reports whether received output is not on the screen yet, or an urgent restoration is
// unfinished.
func (d *display) isBehind() bool {
	if d.restoring != nil {
		return d.restoring.urgent
	}
	return d.screen.Offset() < d.received
}

// write writes the ring's bytes up to end to the screen. It stops early when they have cost about
// budget or taken pieceTime, and returns the cost. The screen is resized at the offsets at which the
// terminal was. drew reports whether there were bytes to write. The screen must not be in
// restoration.
func (d *display) write(end uint64, budget int) (spent int, drew bool) {
	if d.saved.Degraded {
		d.screen.Skip(max(end, d.screen.Offset()))
		return 0, false
	}
	d.fit()
	if d.isLast && d.lastBudget <= 0 {
		d.skipRemainder(end)
	}
	from := d.screen.Offset()
	if from >= end {
		return 0, false
	}
	polite := end-from > courtesyPiece && d.cfg.courtesy.due(d.instance)
	for begun := time.Now(); from < end && spent < budget && !d.saved.Degraded && (spent == 0 || time.Since(begun) < pieceTime); {
		n := end - from
		if m, ok := d.ring.NextMark(from); ok {
			n = min(n, m.Offset-from)
		}
		if polite {
			n = min(n, courtesyPiece)
			rawio.Yield()
		}
		d.use(func() {
			cost := d.screen.WriteSome(d.ring.View(from, int(n)), min(budget-spent, stepCost))
			spent += cost
			d.lastBudget -= cost
			d.keyframe.cost += cost
			d.cost += cost
		})
		d.fit()
		from = d.screen.Offset()
	}
	d.lastWasCostly = spent >= cheapCost
	return spent, true
}

// skipRemainder omits the last output of an ended child, up to end, from the screen, because it
// costs too much.
func (d *display) skipRemainder(end uint64) {
	if from := d.screen.Offset(); from < end {
		d.log.Warn().Uint64(logging.Bytes, end-from).Msg("last output costs too much to show; the exit record has the lines before it")
		d.screen.Skip(end)
		d.isFromRing = false
		d.fit()
	}
}

// noteResize notes a resize mark. The ring has only the last size of several at one offset, and not all marks if they are
// many.
func (d *display) noteResize(at uint64) {
	d.resizes++
	if at > 0 && at == d.resizedAt || d.resizes > maxResizes {
		d.isFromRing = false
	}
	d.resizedAt = at
}

// maxResizes is less than the number of marks that a ring keeps.
const maxResizes = 256

// fit resizes the screen to the size that the terminal had at the screen's offset.
func (d *display) fit() {
	if size := d.ring.SizeAt(d.screen.Offset()); size != d.screen.Size() && !d.saved.Degraded {
		d.use(func() { d.screen.Resize(size) })
		d.answer(d.screen) // the program may have asked to be notified
	}
}

const (
	maxReports     = 16       // files in the directory; more reports are dropped
	reportedBefore = 64 << 10 // bytes of output in a report before those that the panic concerns
)

// coreReport contains the facts that are needed to reproduce a panic of the terminal core. It
// contains output of the session, so it must be written only to a file that belongs to the
// user.
type coreReport struct {
	Session  protocol.SessionID `json:"session"`
	At       time.Time          `json:"at"`
	Panic    string             `json:"panic"`
	Stack    string             `json:"stack"`
	Size     protocol.Size      `json:"size"`
	Offset   uint64             `json:"offset"`   // of the first byte in Printed
	Showing  uint64             `json:"showing"`  // bytes from this offset on were being written to the screen
	Keyframe []byte             `json:"keyframe"` // the last keyframe before the panic; none if the session has secrets
	Printed  []byte             `json:"printed"`
}

// report writes a coreReport about a panic. The screen was at the offset from.
func (d *display) report(why any, stack []byte, from uint64) {
	dir := d.cfg.ReportDir
	if dir == "" {
		return
	}
	old, _ := filepath.Glob(filepath.Join(dir, "core-*.json"))
	if len(old) >= maxReports {
		return
	}
	start, end, _ := d.ring.Bounds()
	r := coreReport{Session: d.id, At: time.Now(), Panic: fmt.Sprint(why), Stack: string(stack), Size: d.terminalSize(), Showing: from}
	r.Offset = max(start, from-min(from, reportedBefore))
	r.Printed = make([]byte, end-min(end, r.Offset))
	n, err := d.ring.ReadAt(r.Printed, r.Offset)
	r.Printed = d.masker.Piece(d.ring, r.Offset, r.Printed[:n])
	if frame, frameErr := d.keyframe.Read(); frameErr == nil && d.masker == nil {
		r.Keyframe = frame
	}
	data, jsonErr := json.Marshal(r)
	path := filepath.Join(dir, fmt.Sprintf("core-%s-%d.json", d.instance, r.At.UnixMilli()))
	if err == nil {
		err = jsonErr
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		d.log.Error().Err(err).Msg("report about the terminal core not written")
		return
	}
	d.log.Error().Str("path", path).Msg("report about the terminal core written; please send it to the developers, but read it before, because it contains output of the session")
}
