package screen

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"holdfast/supervisor/internal/packed"
	"holdfast/supervisor/internal/vt"
)

// A packed record is a record without the lines above the screen, followed by two more sections. They hold the
// sections of the record with all lines, compressed. A program that does not know these sections restores the
// screen without the lines.
const (
	sectionPackedSnapshot byte = 3
	sectionPackedRest     byte = 4
)

// minPackedLines is the number of lines above the screen from which on SavePacked compresses them.
const minPackedLines = 500

// SavePacked writes a record with all lines, as Save does. If there are many lines, the record is packed and
// Unpack must be called before it is used. Its errors are those of Save.
func (s *Screen) SavePacked(w io.WriterAt) error {
	if s.term.HistoryLines() < minPackedLines {
		return s.Save(w, -1)
	}
	r := recordWriter{w: w}
	r.record(s, 0)
	var rest []byte
	r.section(sectionPackedSnapshot, func() {
		p := pieceWriter{to: &r}
		left, err := s.term.Save(&p, s.term.HistoryLines())
		if r.err == nil {
			r.err = err
		}
		p.flush()
		rest = s.remainder(left)
	})
	r.section(sectionPackedRest, func() { r.write(packed.Append(nil, rest)) })
	return r.err
}

// remainder returns the content of sectionRest.
func (s *Screen) remainder(left *vt.Remainder) []byte {
	e := &s.events
	data, err := json.Marshal(saved{
		Size: s.size, Offset: s.offset, Title: e.title, Cwd: e.cwd, Bell: e.bell,
		Titled: e.titled, Moved: e.moved, Notifications: e.notifications,
		Erased: e.erased, Rest: left,
	})
	if err != nil {
		panic("screen: save: " + err.Error()) // all fields of saved can be encoded
	}
	return data
}

// A pieceWriter packs what is written to it, one piece at a time.
type pieceWriter struct {
	to            *recordWriter
	piece, packed []byte
}

func (p *pieceWriter) Write(b []byte) (int, error) {
	p.piece = append(p.piece, b...)
	for len(p.piece) >= packed.PieceBytes {
		p.write(p.piece[:packed.PieceBytes])
		p.piece = p.piece[:copy(p.piece, p.piece[packed.PieceBytes:])]
	}
	return len(b), p.to.err
}

func (p *pieceWriter) write(b []byte) {
	p.packed = packed.Append(p.packed[:0], b)
	p.to.write(p.packed)
}

func (p *pieceWriter) flush() { p.write(p.piece) }

// Unpack returns the record with all lines of a packed record. If the record is not packed, or empty, Unpack returns it
// as it is.
//
// Errors: a packed section is invalid or too long.
func Unpack(record []byte) ([]byte, error) {
	snapshot, rest := []byte(nil), []byte(nil)
	if err := eachSection(record, func(kind byte, body []byte) {
		switch kind {
		case sectionPackedSnapshot:
			snapshot = body
		case sectionPackedRest:
			rest = body
		}
	}); err != nil || snapshot == nil || rest == nil {
		return record, nil // Restore finds the error
	}
	all := append([]byte{recordVersion, sectionSnapshot}, make([]byte, sectionHead-1)...)
	all, err := unpackSection(all, snapshot)
	if err == nil {
		all = append(append(all, sectionRest), make([]byte, sectionHead-1)...)
		all, err = unpackSection(all, rest)
	}
	if err != nil {
		return nil, fmt.Errorf("invalid screen record: a packed section is invalid: %w", err)
	}
	return all, nil
}

// unpackSection appends the content of a packed section to record, which ends with the head of a section, and sets the length
// in that head.
func unpackSection(record, body []byte) ([]byte, error) {
	at := len(record)
	record, err := packed.Unpack(record, body)
	if err == nil {
		binary.LittleEndian.PutUint64(record[at-8:], uint64(len(record)-at))
	}
	return record, err
}
