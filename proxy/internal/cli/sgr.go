package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"holdfast/protocol"
)

// sgrFlags has the attributes of a look that one SGR parameter sets, and another one resets.
var sgrFlags = []struct {
	set, reset int
	of         func(*protocol.Look) *bool
}{
	{1, 22, func(l *protocol.Look) *bool { return &l.Bold }},
	{2, 22, func(l *protocol.Look) *bool { return &l.Dim }},
	{3, 23, func(l *protocol.Look) *bool { return &l.Italic }},
	{5, 25, func(l *protocol.Look) *bool { return &l.Blink }},
	{7, 27, func(l *protocol.Look) *bool { return &l.Inverse }},
	{8, 28, func(l *protocol.Look) *bool { return &l.Invisible }},
	{9, 29, func(l *protocol.Look) *bool { return &l.Strike }},
	{53, 55, func(l *protocol.Look) *bool { return &l.Overline }},
}

// underlines has the underline of each subparameter of 4.
var underlines = []protocol.Underline{
	"", protocol.UnderlineSingle, protocol.UnderlineDouble, protocol.UnderlineCurly, protocol.UnderlineDotted, protocol.UnderlineDashed,
}

// sgrOf returns the SGR parameters that change the default style into l.
func sgrOf(l protocol.Look) string {
	var p []string
	for _, f := range sgrFlags {
		if *f.of(&l) {
			p = append(p, strconv.Itoa(f.set))
		}
	}
	if i := slices.Index(underlines, l.Underline); i == 1 {
		p = append(p, "4")
	} else if i > 1 {
		p = append(p, fmt.Sprintf("4:%d", i))
	}
	for _, c := range []struct{ color, indexed, rgb string }{
		{l.Fg, "38;5;", "38;2;%d;%d;%d"}, {l.Bg, "48;5;", "48;2;%d;%d;%d"}, {l.UnderlineColor, "58:5:", "58:2::%d:%d:%d"},
	} {
		var r, g, b int
		if n, _ := fmt.Sscanf(c.color, "#%02x%02x%02x", &r, &g, &b); n == 3 {
			p = append(p, fmt.Sprintf(c.rgb, r, g, b))
		} else if n, err := fmt.Sscanf(c.color, "%d", &r); n == 1 && err == nil {
			p = append(p, c.indexed+fmt.Sprint(r))
		}
	}
	return strings.Join(p, ";")
}

// applySGR changes a look as SGR with these parameters does.
func applySGR(l *protocol.Look, params string) {
	for fields := strings.Split(params, ";"); len(fields) > 0; {
		first, sub, hasSub := strings.Cut(fields[0], ":")
		fields = fields[1:]
		n, err := strconv.Atoi(first)
		if err != nil && first != "" { // an empty parameter is 0
			continue
		}
		for _, f := range sgrFlags {
			if n == f.set || n == f.reset {
				*f.of(l) = n == f.set
			}
		}
		switch {
		case n == 0:
			*l = protocol.Look{}
		case n == 4 && hasSub:
			l.Underline = underlineOf(sub)
		case n == 4:
			l.Underline = protocol.UnderlineSingle
		case n == 21:
			l.Underline = protocol.UnderlineDouble
		case n == 24:
			l.Underline = ""
		case n >= 30 && n <= 37 || n >= 90 && n <= 97:
			l.Fg = basicColour(n - 30)
		case n >= 40 && n <= 47 || n >= 100 && n <= 107:
			l.Bg = basicColour(n - 40)
		case n == 38 || n == 48 || n == 58:
			var colour string
			if hasSub {
				colour, _ = extendedColour(withoutSpace(strings.Split(sub, ":")))
			} else {
				colour, fields = extendedColour(fields)
			}
			*map[int]*string{38: &l.Fg, 48: &l.Bg, 58: &l.UnderlineColor}[n] = colour
		case n == 39:
			l.Fg = ""
		case n == 49:
			l.Bg = ""
		case n == 59:
			l.UnderlineColor = ""
		}
	}
}

// underlineOf returns the underline that the subparameter of 4 names, or a single one if it names none.
func underlineOf(sub string) protocol.Underline {
	if n, err := strconv.Atoi(sub); err == nil && n >= 0 && n < len(underlines) {
		return underlines[n]
	}
	return protocol.UnderlineSingle
}

// withoutSpace returns the subparameters of an RGB colour without its colour space, which most programs leave out.
func withoutSpace(sub []string) []string {
	if sub[0] == "2" && len(sub) > 4 {
		return append(sub[:1], sub[2:]...)
	}
	return sub
}

// basicColour returns one of the first 16 colours; n is 0 to 7, or 60 to 67 for the bright ones.
func basicColour(n int) string {
	if n >= 60 {
		n -= 52
	}
	return strconv.Itoa(n)
}

// extendedColour returns the colour that the parameters behind 38 or 48 name, and the remaining
// parameters.
func extendedColour(fields []string) (colour string, left []string) {
	number := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n & 0xff }
	switch {
	case len(fields) >= 2 && fields[0] == "5":
		return strconv.Itoa(number(1)), fields[2:]
	case len(fields) >= 4 && fields[0] == "2":
		return fmt.Sprintf("#%02x%02x%02x", number(1), number(2), number(3)), fields[4:]
	}
	return "", nil
}
