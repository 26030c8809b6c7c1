package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"holdfast/protocol"
	"holdfast/shared/palette"
)

// The colours of a fragment are those that the supervisor reports to programs.
var (
	htmlForeground = cssColor(palette.Foreground)
	htmlBackground = cssColor(palette.Background)
)

// cssColor formats a colour for CSS.
func cssColor(rgb uint32) string { return fmt.Sprintf("#%06x", rgb) }

// screenHTML returns a screen as a fragment of HTML that needs no script, style sheet, font or
// network. All text of the session is escaped. Of its styles, only the result of htmlStyle is used.
func screenHTML(id protocol.SessionID, c *protocol.ScreenContent) []byte {
	title := c.Title
	if title == "" {
		title = string(id)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<pre title="%s" style="color:%s;background:%s;font-family:monospace;line-height:1.2;padding:0.5em;margin:0">`,
		html.EscapeString(title), htmlForeground, htmlBackground)
	for i, l := range c.Cells {
		if i > 0 && !l.Wrapped {
			b.WriteByte('\n')
		}
		col := 0
		for _, p := range c.Pictures {
			if p.Row == i {
				htmlLine(&b, cutCells(&l, p.Col-col), c.Looks)
				col = p.Col
				htmlPicture(&b, p)
			}
		}
		htmlLine(&b, l, c.Looks)
	}
	b.WriteString("\n</pre>\n")
	return b.Bytes()
}

// htmlPicture writes a picture that lies over the text that follows. It takes no room in the text.
func htmlPicture(b *bytes.Buffer, p protocol.ScreenPicture) {
	fmt.Fprintf(b, `<img alt="" style="position:absolute;width:%dch;height:%.1fem" src="data:image/png;base64,%s">`,
		p.Cols, 1.2*float64(p.Rows), base64.StdEncoding.EncodeToString(p.PNG))
}

// cutCells removes the cells of the first cols columns from l and returns them, with blanks for columns that l lacks.
func cutCells(l *protocol.ScreenLine, cols int) (first protocol.ScreenLine) {
	for cols > 0 {
		c := protocol.ScreenCell{Text: " "}
		if len(l.Cells) > 0 {
			c, l.Cells = l.Cells[0], l.Cells[1:]
		}
		cols -= c.Columns()
		first.Cells = append(first.Cells, c)
	}
	return first
}

// htmlLine writes a row with one span for each run of cells of the same style.
func htmlLine(b *bytes.Buffer, l protocol.ScreenLine, looks []protocol.Look) {
	for cells := l.Cells; len(cells) > 0; {
		look := cells[0].Look
		n := slices.IndexFunc(cells, func(c protocol.ScreenCell) bool { return c.Look != look })
		if n < 0 {
			n = len(cells)
		}
		var text strings.Builder
		for _, c := range cells[:n] {
			if c.Text == "" {
				text.WriteString(strings.Repeat(" ", c.Columns()))
			} else {
				text.WriteString(strings.Map(visible, c.Text))
			}
		}
		cells = cells[n:]
		escaped := html.EscapeString(text.String())
		if look < 0 || look >= len(looks) {
			b.WriteString(escaped)
			continue
		}
		style, link := htmlStyle(looks[look]), safeLink(looks[look].Link)
		switch {
		case link != "":
			fmt.Fprintf(b, `<a href="%s" rel="noopener" style="%s">%s</a>`, html.EscapeString(link), strings.TrimSuffix("color:inherit;"+style, ";"), escaped)
		case style != "":
			fmt.Fprintf(b, `<span style="%s">%s</span>`, style, escaped)
		default:
			b.WriteString(escaped)
		}
	}
}

// visible removes control characters except tabs, which only printed lines have.
func visible(r rune) rune {
	if r < 0x20 && r != '\t' || r >= 0x7f && r < 0xa0 {
		return -1
	}
	return r
}

// safeLink returns the link if its scheme is harmless, and "" otherwise.
func safeLink(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return ""
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https", "mailto", "file":
		return link
	}
	return ""
}

// htmlStyle converts a style into CSS. The result has only constant words, numbers and checked
// colours.
func htmlStyle(l protocol.Look) string {
	fg, bg := htmlColor(l.Fg), htmlColor(l.Bg)
	if n, err := strconv.Atoi(l.Fg); err == nil && l.Bold && n >= 0 && n < 8 { // bold text has bright colours, as in terminals
		fg = cssColor(palette.RGB(n + 8))
	}
	if l.Inverse {
		if fg == "" {
			fg = htmlForeground
		}
		if bg == "" {
			bg = htmlBackground
		}
		fg, bg = bg, fg
	}
	var out []string
	add := func(on bool, style string) {
		if on {
			out = append(out, style)
		}
	}
	add(fg != "" && !l.Invisible, "color:"+fg)
	add(l.Invisible, "color:transparent")
	add(bg != "", "background:"+bg)
	add(l.Bold, "font-weight:bold")
	add(l.Italic, "font-style:italic")
	add(l.Dim, "opacity:0.6")
	var lines []string
	if l.Underline != "" {
		lines = append(lines, "underline")
	}
	if l.Overline {
		lines = append(lines, "overline")
	}
	if l.Strike {
		lines = append(lines, "line-through")
	}
	add(len(lines) > 0, "text-decoration:"+strings.Join(lines, " "))
	if kind, ok := underlineStyles[l.Underline]; ok {
		out = append(out, "text-decoration-style:"+kind)
	}
	if c := htmlColor(l.UnderlineColor); c != "" && l.Underline != "" {
		out = append(out, "text-decoration-color:"+c)
	}
	return strings.Join(out, ";")
}

// underlineStyles maps underlines to CSS; a single underline is the default.
var underlineStyles = map[protocol.Underline]string{
	protocol.UnderlineDouble: "double", protocol.UnderlineCurly: "wavy", protocol.UnderlineDotted: "dotted", protocol.UnderlineDashed: "dashed",
}

// htmlColor converts a colour to #rrggbb. It returns "" for the default and for an invalid colour.
func htmlColor(c string) string {
	if len(c) == 7 && c[0] == '#' {
		if _, err := strconv.ParseUint(c[1:], 16, 32); err == nil {
			return c
		}
	}
	n, err := strconv.Atoi(c)
	if err != nil || n < 0 || n > 255 {
		return ""
	}
	return cssColor(palette.RGB(n))
}
