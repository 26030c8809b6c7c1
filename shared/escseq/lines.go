package escseq

import "sort"

// Lines are output without escape sequences and controls, in lines. They have the printed text,
// and not the screen: if a program writes at places of the screen, or over a line, each piece is a line of
// its own.
type Lines struct {
	MaxLine    int  // a line ends after so many bytes, because a file without lines may have been printed
	WithStyles bool // sequences that change the style of text stay in it
	Bytes      []byte

	tokens Tokenizer
	isLead bool  // the text so far ended with C1Lead
	runs   []run // ascending; where the text and the output are apart by another number of bytes than before
	line   int   // place at which the last line begins
	soft   bool  // the line before it was ended by something besides a line feed, which may follow
	out    int   // bytes of output that were added
}

// A run is text that was printed without a sequence in between.
type run struct{ text, output int }

// maxStyle bounds a sequence that changes the style.
const maxStyle = 256

// The actions of a byte in text; 0 is a character.
const (
	breaksLine      = 1 + iota
	breaksLineAlone // carriage return: a line feed may follow
	isDropped
)

var actions = func() (a [256]byte) {
	for b := range 0x20 {
		a[b] = isDropped
	}
	a[0x7f], a['\t'], a['\n'], a['\r'] = isDropped, 0, breaksLine, breaksLineAlone
	return a
}()

// Reset removes all text, and keeps the memory for the text of other output.
func (t *Lines) Reset() {
	*t = Lines{MaxLine: t.MaxLine, WithStyles: t.WithStyles, Bytes: t.Bytes[:0], runs: t.runs[:0]}
}

// Add adds output, which continues the output that was added before.
func (t *Lines) Add(output []byte) {
	if t.WithStyles {
		t.tokens.Room = maxStyle
	}
	for at := 0; at < len(output); {
		tok := t.tokens.Next(output, at)
		switch {
		case tok.Kind == Text:
			t.addChars(output[tok.Start:tok.End], t.out+tok.Start)
			at = tok.End
			continue
		case tok.Complete && t.WithStyles && tok.Kind == CSI && tok.Final == 'm' && !t.tokens.IsTooLong() && isStyle(t.tokens.Body()):
			t.addRun(append(append([]byte("\x1b["), t.tokens.Body()...), 'm'), t.out+tok.Start)
		case tok.Complete && movesCursor(tok):
			t.breakLine(t.out + tok.End)
		case tok.Complete && tok.Kind == CSI && (tok.Final == 'C' || tok.Final == 'G' || tok.Final == 'a' || tok.Final == '`'):
			t.addText([]byte(" "), t.out+tok.Start) // columns of a table
		}
		at, t.isLead = tok.End, false
	}
	t.out += len(output)
}

// isStyle reports whether a CSI sequence with the final byte m is SGR. One with a private marker or an intermediate byte is not:
// CSI > 4 ; 2 m changes the keys that a terminal sends, and CSI ? 4 m asks for them.
func isStyle(body []byte) bool {
	for _, b := range body {
		if (b < '0' || b > '9') && b != ';' && b != ':' {
			return false
		}
	}
	return true
}

// addChars adds text. A C1Lead at its end is only added with the byte that it leads, because it could
// make a C1 control of a byte behind a sequence.
func (t *Lines) addChars(p []byte, output int) {
	if t.isLead && p[0]&0xc0 == 0x80 {
		t.addText([]byte{C1Lead}, output-1)
	}
	t.isLead = false
	for len(p) > 0 && p[len(p)-1] == C1Lead {
		p, t.isLead = p[:len(p)-1], true
	}
	t.addText(p, output)
}

// movesCursor reports whether a sequence moves the cursor to another row.
func movesCursor(tok Token) bool {
	switch tok.Kind {
	case CSI:
		switch tok.Final {
		case 'A', 'B', 'E', 'F', 'H', 'd', 'e', 'f', 'J', 'S', 'T':
			return true
		}
	case Escape:
		return tok.Final == 'D' || tok.Final == 'E' || tok.Final == 'M' || tok.Final == 'c'
	}
	return false
}

func (t *Lines) addText(p []byte, output int) {
	for i := 0; i < len(p); {
		from := i
		for i < len(p) && actions[p[i]] == 0 {
			i++
		}
		t.addRun(p[from:i], output+from)
		if i == len(p) {
			return
		}
		switch actions[p[i]] {
		case breaksLine:
			if len(t.Bytes) > t.line || !t.soft {
				t.Bytes = append(t.Bytes, '\n')
				t.line = len(t.Bytes)
			}
			t.soft = false
		case isDropped:
			t.dropLead()
		case breaksLineAlone:
			if i+1 == len(p) || p[i+1] != '\n' {
				t.breakLine(output + i + 1)
			}
		}
		i++
	}
}

// dropLead removes a C1Lead at the end of the line, because the next byte, which does not follow it in
// the output, could make a C1 control of it.
func (t *Lines) dropLead() {
	for n := len(t.Bytes); n > t.line && t.Bytes[n-1] == C1Lead; n-- {
		t.Bytes = t.Bytes[:n-1]
	}
	for k := len(t.runs); k > 0 && t.runs[k-1].text > len(t.Bytes); k-- {
		t.runs = t.runs[:k-1]
	}
}

// addRun adds characters.
func (t *Lines) addRun(p []byte, output int) {
	for len(p) > 0 {
		room := t.MaxLine - (len(t.Bytes) - t.line)
		if room == 0 {
			t.breakLine(output)
			continue
		}
		n := min(len(p), room)
		if k := len(t.runs); k == 0 || output-t.runs[k-1].output != len(t.Bytes)-t.runs[k-1].text {
			t.runs = append(t.runs, run{len(t.Bytes), output})
		}
		t.Bytes = append(t.Bytes, p[:n]...)
		p, output = p[n:], output+n
	}
}

// breakLine ends the line, if it has text. The next one begins with the output at a place.
func (t *Lines) breakLine(output int) {
	if len(t.Bytes) == t.line {
		return
	}
	t.Bytes = append(t.Bytes, '\n')
	t.line, t.soft = len(t.Bytes), true
	t.runs = append(t.runs, run{len(t.Bytes), output})
}

// OutputAt returns the place in the output of the character at a place in the text.
func (t *Lines) OutputAt(at int) int {
	i := sort.Search(len(t.runs), func(i int) bool { return t.runs[i].text > at }) - 1
	if i < 0 {
		return 0
	}
	return t.runs[i].output + at - t.runs[i].text
}

// Take returns the complete lines, and removes them. If all is true, it also returns the last line.
func (t *Lines) Take(all bool) []byte {
	n := t.line
	if all {
		n = len(t.Bytes)
	}
	lines := append([]byte(nil), t.Bytes[:n]...)
	t.Bytes, t.line, t.runs = append(t.Bytes[:0], t.Bytes[n:]...), 0, t.runs[:0]
	return lines
}
