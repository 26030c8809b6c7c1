package screen

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"holdfast/protocol"
	"holdfast/shared/termmode"
)

const (
	// maxRest bounds the JSON of a record. Its odd rows (vt.Remainder) have up to 64 Ki cells of
	// some 50 bytes, or more if a cell has many code points; all other fields take some KB.
	maxRest   = 32 << 20
	maxOffset = 1 << 62 // no program prints so much
)

// A Restorer restores a screen from a record in steps.
//
//	Restore → Step, until it is done → Screen
//
// It may be used by one goroutine at a time, as the screen may afterwards.
type Restorer struct {
	screen *Screen
	left   []byte // bytes of the snapshot that are not written yet
	saved  *saved // nil when the Restorer is done
	offset uint64
}

// Restore begins to restore the screen of a record. scrollbackLines bounds the lines above it,
// as in New; if the record has more, the oldest are dropped. The record must not change before
// Step is done.
//
// Errors: the record is truncated, invalid, or of an unknown version.
func Restore(record []byte, scrollbackLines int) (*Restorer, error) {
	snapshot, rest, err := sections(record)
	if err != nil {
		return nil, fmt.Errorf("restore screen: %w", err)
	}
	s := new(saved)
	if err := json.Unmarshal(rest, s); err != nil {
		return nil, fmt.Errorf("restore screen: %w", err)
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("restore screen: %w", err)
	}
	r := &Restorer{screen: New(s.Size, scrollbackLines), left: snapshot, saved: s, offset: s.Offset}
	r.screen.term.PrepareRestore(s.Rest)
	return r, nil
}

// sections returns the sections of the known kinds.
func sections(record []byte) (snapshot, rest []byte, err error) {
	if err := eachSection(record, func(kind byte, body []byte) {
		switch kind {
		case sectionSnapshot:
			snapshot = body
		case sectionRest:
			rest = body
		}
	}); err != nil {
		return nil, nil, err
	}
	if snapshot == nil || rest == nil || len(rest) > maxRest {
		return nil, nil, invalidRest(nil)
	}
	return snapshot, rest, nil
}

// eachSection calls f for each section of a record, until it finds an error.
func eachSection(record []byte, f func(kind byte, body []byte)) error {
	if len(record) == 0 || record[0] != recordVersion {
		return errors.New("invalid screen record: it is empty or of an unknown version")
	}
	for record = record[1:]; len(record) > 0; {
		if len(record) < sectionHead {
			return errors.New("invalid screen record: a section is truncated")
		}
		kind, n := record[0], binary.LittleEndian.Uint64(record[1:])
		if record = record[sectionHead:]; n > uint64(len(record)) {
			return errors.New("invalid screen record: a section is truncated")
		}
		f(kind, record[:n])
		record = record[n:]
	}
	return nil
}

func invalidRest(err error) error {
	return errors.Join(fmt.Errorf("invalid screen record: its snapshot or its state is missing, or its state exceeds %d MiB", maxRest>>20), err)
}

func (s *saved) validate() error {
	if s.Size.Cols < 1 || s.Size.Cols > protocol.MaxCols || s.Size.Rows < 1 || s.Size.Rows > protocol.MaxRows {
		return fmt.Errorf("invalid screen record: size %s is out of range", s.Size)
	}
	if s.Offset > maxOffset || len(s.Notifications) > maxNotifications || s.Rest == nil {
		return errors.New("invalid screen record: its offset or number of notifications is out of range, or its remainder is missing")
	}
	return s.Rest.Validate()
}

// Step restores about n more bytes of the snapshot, and reports whether the screen is
// complete. It takes some 10 ms for a MB. After the last step, further calls do nothing.
func (r *Restorer) Step(n int) (done bool) {
	if r.saved == nil {
		return true
	}
	n = min(max(n, 1), len(r.left))
	r.screen.term.Refill(r.left[:n])
	if r.left = r.left[n:]; len(r.left) == 0 {
		r.finish()
	}
	return r.saved == nil
}

// finish sets the state that the snapshot does not contain. It also drops the events that
// writing the snapshot has caused.
func (r *Restorer) finish() {
	s, v := r.screen, r.saved
	r.saved, r.left = nil, nil
	s.term.FinishRestore(v.Rest)
	s.offset, s.heard = v.Offset, Heard{}
	s.events = events{
		title: clean(v.Title, protocol.MaxTitle), cwd: clean(v.Cwd, protocol.MaxCwdBytes),
		bell: v.Bell, titled: v.Titled, moved: v.Moved, erased: v.Erased,
	}
	for _, n := range v.Notifications {
		s.events.notifications = append(s.events.notifications, protocol.Notification{
			Title: clean(n.Title, protocol.MaxTitle), Body: clean(n.Body, protocol.MaxTitle),
		})
	}
}

// Offset returns the output offset at which the record was saved.
func (r *Restorer) Offset() uint64 { return r.offset }

// Screen returns the restored screen, or nil if Step is not done yet.
func (r *Restorer) Screen() *Screen {
	if r.saved != nil {
		return nil
	}
	return r.screen
}

// Load restores the screen of a record at once. Its arguments and errors are those of Restore.
func Load(record []byte, scrollbackLines int) (*Screen, error) {
	r, err := Restore(record, scrollbackLines)
	if err != nil {
		return nil, err
	}
	for !r.Step(1 << 20) {
	}
	return r.Screen(), nil
}

// Continue returns a screen at offset 0 for a new program. Above it are the lines of a saved screen,
// and then a line with the text between. All modes have their defaults.
func Continue(record []byte, size protocol.Size, scrollbackLines int, between string) (*Screen, error) {
	s, err := Load(record, scrollbackLines)
	if err != nil {
		return nil, err
	}
	s.Resize(size)
	s.Write(resetModes)
	content, _ := s.View(0).Content(protocol.ScreenSpec{Format: protocol.ScreenText})
	last := 0
	for y, line := range content.Lines {
		if strings.TrimSpace(line) != "" {
			last = y + 1
		}
	}
	s.Write(fmt.Appendf(nil, "\x1b[%d;1H\r\n\x1b[J\x1b[2m── %s ──\x1b[0m\r\n", max(last, 1), clean(between, protocol.MaxTitle)))
	s.Replies()
	s.Events()
	s.Heard()
	s.Skip(0)
	return s, nil
}

// resetModes leaves the alternate screen and resets the modes, the pen and the title. It does not
// change a line.
var resetModes = func() []byte {
	b := []byte("\x1b[?1049l\x1b[!p")
	for _, m := range termmode.All {
		if m.Core == termmode.Kept && m.Undo != termmode.Alternate {
			b = append(b, m.Sequence(m.Default)...)
		}
	}
	return append(b, "\x1b[0m\x1b(B\x0f\x1b[r\x1b[0 q\x1b]2;\x07"...)
}()
