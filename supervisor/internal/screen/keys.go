package screen

import (
	"unicode"
	"unicode/utf8"

	"holdfast/protocol"
	"holdfast/shared/keyname"
)

// Keys returns the bytes that a terminal sends for keys. They depend on the modes that the
// program has set.
//
// Errors: invalid_argument if a name is no key, or if no terminal sends it with these
// modifiers.
func (s *Screen) Keys(names []string) ([]byte, error) {
	modes := s.term.Modes()
	sent, err := keyname.Encode(names, keyname.Modes{ApplicationCursor: modes.ApplicationCursor, NewLine: modes.NewLine})
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "%v", err)
	}
	return sent, nil
}

// Paste returns the bytes that a terminal sends when text is pasted. A line end is sent as
// Enter. If the program has set mode 2004, the text is framed. Controls except tabs are
// removed, because they are no text: some of them could end the frame, or could act as keys.
func (s *Screen) Paste(text []byte) []byte {
	out := make([]byte, 0, len(text)+len(pasteBegins)+len(pasteEnds))
	framed := s.term.Modes().BracketedPaste
	if framed {
		out = append(out, pasteBegins...)
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case r == '\n' && i > 0 && text[i-1] == '\r': // CR and LF are one line end
		case r == '\n' || r == '\r':
			out = append(out, '\r')
		case r == utf8.RuneError && n == 1 && text[i] < 0xa0: // a byte of 0x80 to 0x9f: a control for programs that do not decode UTF-8
		case r == '\t' || !unicode.IsControl(r):
			out = append(out, text[i:i+n]...)
		}
		i += n
	}
	if framed {
		out = append(out, pasteEnds...)
	}
	return out
}

const pasteBegins, pasteEnds = "\x1b[200~", "\x1b[201~"
