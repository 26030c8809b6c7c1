package screen

import (
	"encoding/binary"
	"io"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt"
)

// A record is a saved screen: recordVersion, followed by sections. A section has a kind (a
// byte), a length (uint64, little endian) and as many bytes. Unknown sections and unknown
// fields of the JSON must be skipped, because later versions may add them.
const (
	recordVersion = 1

	sectionSnapshot byte = 1 // a snapshot by vt in the screen's own size
	sectionRest     byte = 2 // a value of type saved, as JSON

	sectionHead = 1 + 8
)

// saved is the state that the snapshot does not contain.
type saved struct {
	Size          protocol.Size           `json:"size"`
	Offset        uint64                  `json:"offset"`
	Title         string                  `json:"title,omitempty"`
	Cwd           string                  `json:"cwd,omitempty"`
	Bell          bool                    `json:"bell,omitempty"`
	Titled        bool                    `json:"titled,omitempty"`
	Moved         bool                    `json:"moved,omitempty"`
	Notifications []protocol.Notification `json:"notifications,omitempty"`
	Erased        Erased                  `json:"erased,omitzero"`
	Rest          *vt.Remainder           `json:"rest"`
}

// Save writes a record of the whole state, with up to history lines above the screen. If
// history is negative, all lines are written. Restore makes the same screen of the record, in
// this program or in another one. The record has the events, notifications and replies that
// have not been taken; they also stay in s.
//
// The record has about the length of the text with its styles. Save holds a small part of it
// at a time.
//
// Errors: those of w.
func (s *Screen) Save(w io.WriterAt, history int) error {
	if history < 0 {
		history = s.term.HistoryLines()
	}
	r := recordWriter{w: w}
	r.record(s, history)
	return r.err
}

// record writes a record with at most history lines above the screen.
func (r *recordWriter) record(s *Screen, history int) {
	r.write([]byte{recordVersion})
	var rest []byte
	r.section(sectionSnapshot, func() {
		left, err := s.term.Save(r, history)
		if r.err == nil {
			r.err = err
		}
		rest = s.remainder(left)
	})
	r.section(sectionRest, func() { r.write(rest) })
}

// A recordWriter writes a record from its beginning to its end. After an error it writes no
// more bytes.
type recordWriter struct {
	w   io.WriterAt
	n   int64 // bytes written
	err error
}

func (r *recordWriter) Write(p []byte) (int, error) {
	r.write(p)
	return len(p), r.err
}

func (r *recordWriter) write(p []byte) {
	if r.err == nil {
		_, r.err = r.w.WriteAt(p, r.n)
		r.n += int64(len(p))
	}
}

// section writes a section. body must write the bytes of the section.
func (r *recordWriter) section(kind byte, body func()) {
	head := [sectionHead]byte{kind}
	r.write(head[:])
	at := r.n
	body()
	binary.LittleEndian.PutUint64(head[1:], uint64(r.n-at))
	if r.err == nil {
		_, r.err = r.w.WriteAt(head[:], at-sectionHead)
	}
}
