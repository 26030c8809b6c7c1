package screen

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"holdfast/protocol"
)

const (
	// maxRest bounds the JSON of a record: its rows (vt.Rest) are 64 Ki cells of
	// some 50 bytes, unless a cell has many code points, and the rest is some KB.
	maxRest   = 32 << 20
	maxOffset = 1 << 62 // no program prints so much
)

// A Restorer makes a screen of a record, little by little.
//
//	Restore → Step, until it is done → Screen
//
// It belongs to one goroutine at a time, as the screen does then.
type Restorer struct {
	screen *Screen
	left   []byte // of the snapshot
	saved  *saved // nil once it is done
	offset uint64
}

// Restore begins to make the screen that a record is of. scrollbackLines bounds
// the lines above it, as for New; the oldest ones are forgotten where they are
// more. The record must not change before Step is done.
//
// Errors: a record that is cut, not one, or of a version that is not known.
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
	r.screen.term.Expect(s.Rest)
	return r, nil
}

// sections returns those that are known.
func sections(record []byte) (snapshot, rest []byte, err error) {
	if len(record) == 0 || record[0] != recordVersion {
		return nil, nil, errors.New("not a record of a version that is known")
	}
	for record = record[1:]; len(record) > 0; {
		if len(record) < sectionHead {
			return nil, nil, errors.New("the record is cut")
		}
		kind, n := record[0], binary.LittleEndian.Uint64(record[1:])
		if record = record[sectionHead:]; n > uint64(len(record)) {
			return nil, nil, errors.New("the record is cut")
		}
		switch kind {
		case sectionSnapshot:
			snapshot = record[:n]
		case sectionRest:
			rest = record[:n]
		}
		record = record[n:]
	}
	if snapshot == nil || rest == nil || len(rest) > maxRest {
		return nil, nil, errors.New("the record lacks something, or has too much")
	}
	return snapshot, rest, nil
}

func (s *saved) validate() error {
	if s.Size.Cols < 1 || s.Size.Cols > protocol.MaxCols || s.Size.Rows < 1 || s.Size.Rows > protocol.MaxRows {
		return fmt.Errorf("size %s out of range", s.Size)
	}
	if s.Offset > maxOffset || len(s.Notifications) > maxNotifications || s.Rest == nil {
		return errors.New("something is missing or out of range")
	}
	return s.Rest.Validate()
}

// Step takes about n bytes of what is left and reports whether that was all;
// then there is nothing more to do. It takes some 10 ms for a MB.
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

// finish also forgets what the snapshot has told as events.
func (r *Restorer) finish() {
	s, v := r.screen, r.saved
	r.saved, r.left = nil, nil
	s.term.Restored(v.Rest)
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

// Offset is what the record stands for.
func (r *Restorer) Offset() uint64 { return r.offset }

// Screen returns what was made, nil before Step was done.
func (r *Restorer) Screen() *Screen {
	if r.saved != nil {
		return nil
	}
	return r.screen
}
