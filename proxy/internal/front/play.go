package front

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/escseq"
	"holdfast/shared/termmode"
)

// A Recording is the past of a session.
type Recording interface {
	// State returns the screen at a moment, in the format state.
	State(ctx context.Context, at protocol.Moment) (*protocol.ScreenContent, error)
	// Output yields the output from one offset to another.
	Output(ctx context.Context, from, to uint64) iter.Seq2[client.PastOutput, error]
}

// PlayOptions choose a part of a recording, and how fast it is shown.
type PlayOptions struct {
	From, Until uint64
	Speed       float64       // 2 is twice as fast
	MaxPause    time.Duration // longer pauses in the output are shortened to it
}

// Play shows a recording on the terminal t with its timing, until it ends or the user presses q, and
// restores t. Space pauses, left and right go back and ahead 10 s, up and down a minute.
func Play(ctx context.Context, t *Terminal, r Recording, o PlayOptions) error {
	if err := t.Raw(); err != nil {
		return err
	}
	defer t.Restore()
	keys := make(chan string, maxKeys)
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	go readKeys(ctx, t, keys, leave)
	p := &player{recording: r, PlayOptions: o, out: t, keys: keys, clear: t.clear}
	return p.run(ctx)
}

// maxKeys bounds the keys that wait for the player.
const maxKeys = 64

// errLeft is the cause with which a playback ends if the user leaves it.
var errLeft = errors.New("the user has left")

// readKeys sends the keys that the user presses, until ctx is done. A key that leaves calls leave at once, because the
// player may wait for an answer of the supervisor for as long as that is stopped. Keys for which the player has no room
// are dropped, so that the key behind them is read.
func readKeys(ctx context.Context, t *Terminal, keys chan<- string, leave context.CancelCauseFunc) {
	buf := make([]byte, 4<<10)
	for {
		n, err := t.in.read(buf, nil)
		for b := buf[:n]; len(b) > 0; {
			k := firstKey(b)
			b = b[len(k):]
			if slices.Contains(leaveKeys, k) {
				leave(errLeft)
			}
			select {
			case keys <- k:
			case <-ctx.Done():
				return
			default:
			}
		}
		if err != nil {
			return // the recording can be watched without a keyboard
		}
	}
}

// A player shows a recording.
type player struct {
	PlayOptions
	recording Recording
	out       io.Writer
	keys      <-chan string
	clear     func(scroll bool) // makes room for a state

	offset   uint64    // the screen at this offset is shown
	at       time.Time // when its last output was printed; zero: unknown
	isBegun  bool      // the terminal shows the recording, and not what was there before
	isPaused bool
	filter   playFilter
}

// The steps of the arrow keys.
const (
	smallStep = 10 * time.Second
	largeStep = time.Minute
)

var (
	backKeys  = []string{"\x1b[D", "\x1bOD", "h"}
	aheadKeys = []string{"\x1b[C", "\x1bOC", "l"}
)

// An action is the effect of a key.
type action struct {
	isEnd bool
	step  time.Duration // not 0: go back or ahead in time
}

// run shows the recording until its end, or until the user leaves.
func (p *player) run(ctx context.Context) error {
	err := p.show(ctx)
	if errors.Is(context.Cause(ctx), errLeft) {
		return nil
	}
	return err
}

// show shows the recording until its end, or until ctx is done.
func (p *player) show(ctx context.Context) error {
	if err := p.seek(ctx, protocol.Moment{Offset: &p.From}); err != nil {
		return err
	}
	for {
		a, err := p.play(ctx)
		if err != nil || a.isEnd {
			return err
		}
		if p.at.IsZero() {
			continue
		}
		if err := p.seek(ctx, protocol.Moment{Time: p.at.Add(a.step)}); err != nil {
			return err
		}
	}
}

// seek shows the screen of a moment. A moment before the recording is its beginning, one behind it
// its end.
func (p *player) seek(ctx context.Context, to protocol.Moment) error {
	s, err := p.recording.State(ctx, to)
	switch {
	case protocol.CodeOf(err) == protocol.CodeNotStored && to.Offset == nil, err == nil && s.Offset < p.From:
		to = protocol.Moment{Offset: &p.From}
		s, err = p.recording.State(ctx, to)
	case err == nil && s.Offset > p.Until:
		to = protocol.Moment{Offset: &p.Until}
		s, err = p.recording.State(ctx, to)
	}
	if err != nil {
		return err
	}
	p.clear(!p.isBegun)
	p.isBegun = true
	p.offset, p.filter = s.Offset, playFilter{}
	p.at = s.PrintedAt
	if to.Time.After(p.at) { // nothing was printed up to then; the next step begins there
		p.at = to.Time
	}
	return p.write(s.State)
}

func (p *player) write(output []byte) error {
	_, err := p.out.Write(p.filter.apply(output))
	return err
}

// play shows the output from the present offset on, until a key ends that or asks for another place.
// At the end it waits for a key if the user has paused before.
func (p *player) play(ctx context.Context) (action, error) {
	for part, err := range p.recording.Output(ctx, p.offset, p.Until) {
		if err != nil {
			return action{}, err
		}
		if part.Offset > p.offset { // output is missing, and the screen continues with another one
			if err := p.seek(ctx, protocol.Moment{Offset: &part.Offset}); err != nil {
				return action{}, err
			}
		}
		for _, s := range steps(part) {
			if a := p.wait(ctx, s.at); a != (action{}) {
				return a, ctx.Err()
			}
			if err := p.write(s.data); err != nil {
				return action{}, err
			}
			p.offset = s.offset + uint64(len(s.data))
		}
	}
	if !p.isPaused {
		return action{isEnd: true}, nil
	}
	return p.wait(ctx, time.Time{}), ctx.Err()
}

// A step is output that was printed at one time.
type step struct {
	offset uint64
	at     time.Time // zero: unknown
	data   []byte
}

// steps divides output at its times.
func steps(part client.PastOutput) (all []step) {
	s := step{offset: part.Offset, data: part.Data}
	for _, t := range part.Times {
		if n := t.Offset - s.offset; t.Offset > s.offset && n < uint64(len(s.data)) {
			all = append(all, step{s.offset, s.at, s.data[:n]})
			s = step{offset: t.Offset, data: s.data[n:]}
		}
		if t.Offset <= s.offset {
			s.at = t.At
		}
	}
	return append(all, s)
}

// wait waits until the output that was printed at a time is due. If a key that
// moves the playback comes before, or ctx is done, wait returns an action, and otherwise the zero action.
func (p *player) wait(ctx context.Context, at time.Time) action {
	pause := time.Duration(0)
	if !at.IsZero() && !p.at.IsZero() {
		pause = min(max(0, at.Sub(p.at)), p.MaxPause)
	}
	due := time.NewTimer(time.Duration(float64(pause) / cmp.Or(p.Speed, 1)))
	defer due.Stop()
	for {
		c := due.C
		if p.isPaused {
			c = nil
		}
		select {
		case <-ctx.Done():
			return action{isEnd: true}
		case <-c:
			if !at.IsZero() {
				p.at = at
			}
			return action{}
		case k := <-p.keys:
			switch {
			case k == " ":
				p.isPaused = !p.isPaused
			case slices.Contains(backKeys, k):
				return action{step: -smallStep}
			case slices.Contains(aheadKeys, k):
				return action{step: smallStep}
			case slices.Contains(upKeys, k):
				return action{step: -largeStep}
			case slices.Contains(downKeys, k):
				return action{step: largeStep}
			}
		}
	}
}

// A playFilter removes the parts of output that must have no effect again: questions to the terminal,
// because no program reads the answers; changes of the clipboard; notifications and bells; and the
// modes in which the terminal sends keys and the mouse in another form.
type playFilter struct {
	tokens escseq.Tokenizer
	isLead bool // the text so far ended with C1Lead, which is only passed on with the byte that it leads
}

// isInputMode reports whether a private mode, as its parameter without the question mark, changes what the terminal sends.
func isInputMode(parameter string) bool {
	return slices.ContainsFunc(termmode.All, func(m termmode.Mode) bool { return m.IsInput && m.Private && strconv.Itoa(m.Number) == parameter })
}

// displayed are the final bytes of the CSI sequences that may change the display of the terminal.
const displayed = "@ABCDEFGHIJKLMPSTXZ`abdefghlmrsu"

// apply returns output without these sequences. A sequence that the output does not complete is
// dropped.
func (f *playFilter) apply(output []byte) []byte {
	f.tokens.Room = maxBody
	kept := make([]byte, 0, len(output))
	for at := 0; at < len(output); {
		tok := f.tokens.Next(output, at)
		at = tok.End
		body := f.tokens.Body()
		if f.isLead && tok.Kind == escseq.Text && output[tok.Start]&0xc0 == 0x80 {
			kept = append(kept, escseq.C1Lead)
		}
		f.isLead = false
		switch {
		case tok.Kind == escseq.Text:
			text := output[tok.Start:tok.End]
			for len(text) > 0 && text[len(text)-1] == escseq.C1Lead {
				text, f.isLead = text[:len(text)-1], true
			}
			kept = append(kept, withoutSignals(text)...)
		case !tok.Complete || f.tokens.IsTooLong():
		case tok.Kind == escseq.Escape && (tok.Final != '\\' && tok.Final != 'Z' && tok.Final != '='):
			kept = append(append(append(kept, escseq.ESC), body...), tok.Final)
		case tok.Kind == escseq.CSI:
			kept = appendDisplayed(kept, string(body), tok.Final)
		case tok.Kind == escseq.OSC && isShown(body):
			kept = append(append(append(kept, "\x1b]"...), body...), '\a')
		}
	}
	return kept
}

// withoutSignals removes ENQ and BEL. The first byte of a C1 control before them is removed as well,
// because the byte behind them could complete the control.
func withoutSignals(text []byte) []byte {
	if bytes.IndexByte(text, 0x05) < 0 && bytes.IndexByte(text, escseq.BEL) < 0 {
		return text
	}
	kept := make([]byte, 0, len(text))
	for _, b := range text {
		if b != 0x05 && b != escseq.BEL {
			kept = append(kept, b)
			continue
		}
		for len(kept) > 0 && kept[len(kept)-1] == escseq.C1Lead {
			kept = kept[:len(kept)-1]
		}
	}
	return kept
}

// isShown reports whether the body of an OSC changes the display of the terminal: a title, a colour
// or a link.
func isShown(body []byte) bool {
	number, rest, _ := bytes.Cut(body, []byte(";"))
	switch string(number) {
	case "0", "1", "2", "8", "104", "110", "111", "112", "117", "119":
		return true
	case "4", "10", "11", "12", "17", "19":
		return !bytes.ContainsRune(rest, '?')
	}
	return false
}

// appendDisplayed appends a CSI sequence, as far as it changes the display of the terminal.
func appendDisplayed(p []byte, params string, final byte) []byte {
	modes, isMode := strings.CutPrefix(params, "?")
	switch {
	case isMode && (final == 'h' || final == 'l'):
		shown := slices.DeleteFunc(strings.Split(modes, ";"), isInputMode)
		if len(shown) == 0 {
			return p
		}
		params = "?" + strings.Join(shown, ";")
	case isMode && (final == 'J' || final == 'K'):
	case final == 'q' && strings.HasSuffix(params, " "), final == 'p' && params == "!":
	case !strings.ContainsRune(displayed, rune(final)), strings.ContainsAny(params, "<=>?"):
		return p
	}
	return append(append(append(p, "\x1b["...), params...), final)
}
