package screen

import "bytes"

// Quiet returns data without what must not happen again when it is shown a
// second time: questions, which the viewer's terminal would answer into the
// child's input, and bells. What is cut off at the end of data is left as it
// is: the live bytes complete it.
//
// The questions are those that xterm answers (invisible-island.net/xterm,
// "XTerm Control Sequences"): ENQ, DA1 to DA3, DSR, DECRQM, XTVERSION, window
// reports, kitty's keyboard query, DECRQSS, XTGETTCAP, and OSC with "?".
func Quiet(data []byte) []byte {
	out := make([]byte, 0, len(data))
	open := false // within a string too long to be a question: its BEL is its end
	for len(data) > 0 {
		n, loud := 1, false
		switch data[0] {
		case 0x05:
			loud = true
		case 0x07:
			loud, open = !open, false
		case 0x1b:
			n, loud = sequence(data)
			open = n == 1 && len(data) > 1 && data[1] == ']'
		default:
			if n = bytes.IndexAny(data, "\x05\x07\x1b"); n < 0 {
				n = len(data)
			}
		}
		if !loud {
			out = append(out, data[:n]...)
		}
		data = data[n:]
	}
	return out
}

// maxSequence is how far the end of a sequence is looked for; a longer one is
// no question.
const maxSequence = 4096

// sequence returns the length of the escape sequence at the beginning of data,
// as far as it matters, and whether it is a question.
func sequence(data []byte) (n int, question bool) {
	if len(data) < 2 {
		return len(data), false
	}
	switch data[1] {
	case '[':
		return csiSequence(data)
	case ']', 'P':
		return stringSequence(data)
	case 'Z': // DECID
		return 2, true
	}
	return 1, false
}

func csiSequence(data []byte) (int, bool) {
	for i := 2; i < len(data) && i < maxSequence; i++ {
		switch b := data[i]; {
		case b >= 0x40 && b <= 0x7e:
			return i + 1, isQuestion(data[2:i], b)
		case b < 0x20 || b > 0x7e: // no clean sequence: pass it on as it came
			return i, false
		}
	}
	return min(len(data), maxSequence), false
}

func isQuestion(params []byte, final byte) bool {
	switch final {
	case 'c': // DA1, DA2 (>), DA3 (=)
		return len(params) == 0 || params[0] != '?'
	case 'n': // DSR; with > it sets key modifiers
		return len(params) == 0 || params[0] != '>'
	case 'p': // DECRQM
		return bytes.HasSuffix(params, []byte("$"))
	case 'q': // XTVERSION
		return len(params) > 0 && params[0] == '>'
	case 'u': // kitty keyboard: what are the flags?
		return bytes.Equal(params, []byte("?"))
	case 't': // reports of window and cell sizes, positions and titles
		ps, _, _ := bytes.Cut(params, []byte(";"))
		switch string(ps) {
		case "11", "13", "14", "15", "16", "18", "19", "20", "21":
			return true
		}
	case 'x': // DECREQTPARM
		return len(params) <= 1
	}
	return false
}

func stringSequence(data []byte) (int, bool) {
	data = data[:min(len(data), maxSequence)]
	end, length := bytes.Index(data, []byte("\x1b\\")), 2
	if bel := bytes.IndexByte(data, 0x07); bel >= 0 && data[1] == ']' && (end < 0 || bel < end) {
		end, length = bel, 1
	}
	if end < 0 {
		return 1, false
	}
	body := data[2:end]
	if data[1] == 'P' {
		return end + length, bytes.HasPrefix(body, []byte("$q")) || bytes.HasPrefix(body, []byte("+q"))
	}
	return end + length, bytes.HasSuffix(body, []byte(";?"))
}
