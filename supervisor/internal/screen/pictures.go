package screen

import (
	"bytes"
	"slices"

	"holdfast/protocol"
	"holdfast/shared/escseq"
	"holdfast/supervisor/internal/picture"
	"holdfast/supervisor/internal/vt"
)

// shows returns the pictures that a viewer's terminal shows. look may be nil.
func shows(look *protocol.Appearance) (s vt.Shows) {
	if look == nil {
		return s
	}
	p := look.Pictures
	if p.Sixel {
		s.Formats |= picture.Formats(picture.Sixel)
	}
	if p.ITerm2 {
		s.Formats |= picture.Formats(picture.ITerm2)
	}
	if p.Kitty {
		s.Formats |= picture.Formats(picture.Kitty)
	}
	s.Cell = picture.Cell{Width: p.CellWidth, Height: p.CellHeight}
	if !s.Cell.Valid() {
		s.Cell = picture.Cell{Width: float64(look.CellWidth), Height: float64(look.CellHeight)}
	}
	if !s.Cell.Valid() {
		s.Cell = picture.DefaultCell
	}
	return s
}

// HasPictures reports whether the screen or the lines above it may show pictures.
func (s *Screen) HasPictures() bool { return s.term.HasPictures() }

// SameCells reports whether the cells of two terminals have the same size.
func SameCells(a, b protocol.Appearance) bool { return shows(&a).Cell == shows(&b).Cell }

// PicturesAlike returns the forms of pictures that a viewer's terminal lays out as the session's screen
// does, so that the viewer may receive the program's bytes: those that it shows, if its cells are as large
// as those of the session, whose appearance is session. A viewer without an appearance receives all bytes,
// because it may be no terminal.
func PicturesAlike(viewer *protocol.Appearance, session protocol.Appearance) picture.Formats {
	if viewer == nil {
		return picture.AllFormats
	}
	s := shows(viewer)
	if !SameCells(*viewer, session) {
		return 0
	}
	return s.Formats
}

// A PictureCover replaces the bytes of pictures by NUL, for a viewer with a terminal that does not show them. The
// length of the output does not change. The introducer and the terminator stay, so that the terminal
// drops an empty string. The zero value is between sequences.
type PictureCover struct {
	tokens  escseq.Tokenizer
	covered bool // the sequence so far is a picture that is covered
}

// maxIntroducer limits the text before the data of a picture, by which its format is recognised. Before the q of sixels there are
// up to three numbers.
const maxIntroducer = 64

// shortRest is the largest length of the end of a sequence at the beginning of a piece of output after which the rest of the piece
// is searched for pictures.
const shortRest = 64

// Apply covers the pictures in p, except for those of the formats in shown. p must continue the bytes of
// the last call.
func (m *PictureCover) Apply(p []byte, shown picture.Formats) {
	m.tokens.Room = maxIntroducer
	for n := 0; n < shortRest && len(p) > 0 && !m.tokens.IsBetween(); n++ {
		m.apply(p[:1], shown)
		p = p[1:]
	}
	if m.tokens.IsBetween() && !mayHavePicture(p) {
		i := lastSequence(p)
		if i < 0 {
			return
		}
		p = p[i:]
	}
	m.apply(p, shown)
}

// mayHavePicture reports whether the introducer of a picture may be in p, which begins between sequences. The last sequence in p may be one
// nevertheless.
func mayHavePicture(p []byte) bool {
	if bytes.IndexByte(p, escseq.C1Lead) >= 0 {
		return true
	}
	for {
		i := bytes.IndexByte(p, escseq.ESC)
		if i < 0 || i+1 == len(p) {
			return false
		}
		p = p[i+1:]
		switch c := p[0]; {
		case c == 'P', c == '_', isIgnored(c):
			return true
		case c == ']':
			number := p[1:min(len(p), 1+len("1337"))]
			if string(number) == "1337" || slices.ContainsFunc(number, isIgnored) {
				return true
			}
		}
	}
}

// isIgnored reports whether terminals ignore c within an introducer, or execute it there.
func isIgnored(c byte) bool { return c < ' ' || c > '~' }

// apply does the work of Apply byte by byte.
func (m *PictureCover) apply(p []byte, shown picture.Formats) {
	for i := 0; i < len(p); {
		tok := m.tokens.Next(p, i)
		i = tok.End
		from := tok.Start
		if !m.covered {
			from = m.begins(p, &tok, shown)
		}
		end := tok.End
		if tok.Complete && tok.Final != escseq.ESC {
			end--
		}
		if m.covered {
			for at := from; at < end; at++ {
				if p[at] < 0x80 && p[at] >= 0x20 { // a terminator that is cut stays
					p[at] = 0
				}
			}
		}
		if tok.Final != 0 {
			m.covered = false
		}
	}
}

// begins finds out whether a token is the beginning of a picture that must be covered, and returns the
// index of the first byte to cover.
func (m *PictureCover) begins(p []byte, tok *escseq.Token, shown picture.Formats) (from int) {
	body := m.tokens.Body()
	switch tok.Kind {
	case escseq.DCS:
		n := 0
		for n < len(body) && (body[n] >= '0' && body[n] <= '9' || body[n] == ';') {
			n++
		}
		m.covered = n < len(body) && body[n] == 'q' && !shown.Has(picture.Sixel)
		if i := bytes.IndexByte(p[tok.Start:tok.End], 'q'); i >= 0 {
			return tok.Start + i + 1
		}
	case escseq.OSC:
		m.covered = bytes.HasPrefix(body, []byte(picture.FilePrefix)) && !shown.Has(picture.ITerm2)
		if i := bytes.IndexByte(p[tok.Start:tok.End], '='); i >= 0 { // the last byte of FilePrefix
			return tok.Start + i + 1
		}
	case escseq.APC:
		m.covered = bytes.HasPrefix(body, []byte("G")) && !shown.Has(picture.Kitty)
		if i := bytes.IndexByte(p[tok.Start:tok.End], 'G'); i >= 0 {
			return tok.Start + i + 1
		}
	}
	return tok.Start
}
