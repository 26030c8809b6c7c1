package screen

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"

	"holdfast/shared/mask"
	"holdfast/supervisor/internal/vt"
)

// SetMasker sets the secrets that views, lines, searches and lookouts of the screen mask. It
// does not concern snapshots, which are for the terminals of viewers, and saved screens.
func (s *Screen) SetMasker(m *mask.Masker) { s.masker = m }

// hidden are the cells of secrets in some rows of a sheet.
type hidden struct {
	first int     // index of the first row
	rows  [][]int // for each row the indices of cells, in ascending order
}

// hiddenIn returns the indices of the cells of row i that belong to a secret. A secret may
// continue in the rows of the same line.
func (p *sheet) hiddenIn(i int) []int {
	if h := &p.hidden; i < h.first || i >= h.first+len(h.rows) {
		*h = p.findHidden(i)
	}
	return p.hidden.rows[i-p.hidden.first]
}

// findHidden returns the cells of secrets in the line with row i. If the line has very many rows,
// it returns those of row i.
func (p *sheet) findHidden(i int) hidden {
	most := 2 + mask.MaxLine/p.cols // rows that a secret may have before and behind row i
	first, end := i, i+1
	for first > 0 && i-first < most && p.Wrapped(first) {
		first--
	}
	for end < p.Len() && end-i <= most && p.Wrapped(end) {
		end++
	}
	h := hidden{first, make([][]int, end-first)}
	var text []byte
	var starts []int // where each cell begins in text
	var at [][2]int  // row and index of each of these cells
	for r := first; r < end; r++ {
		cells := p.Rows.Cells(r)
		p.room -= len(cells)
		if n := len(cells); r+1 < end && n == p.cols && cells[n-1].Text == "" && cells[n-1].Width == 1 {
			cells = cells[:n-1] // a wide character had no room
		}
		for k, c := range cells {
			if c.Text == "" && c.Width == 0 {
				continue
			}
			starts, at = append(starts, len(text)), append(at, [2]int{r - first, k})
			text = append(text, content(c)...)
		}
		for k := len(cells); r+1 < end && k < p.cols-1; k++ {
			text = append(text, ' ')
		}
	}
	for _, f := range p.masker.Find(text, false) {
		from, _ := slices.BinarySearch(starts, f.Start+1)
		for k := from - 1; k < len(starts) && starts[k] < f.End; k++ {
			h.rows[at[k][0]] = append(h.rows[at[k][0]], at[k][1])
		}
	}
	if i-first >= most || end-i > most {
		return hidden{i, h.rows[i-first : i-first+1]}
	}
	return h
}

// masked returns the cells of a row with an asterisk in each column of a secret.
func masked(cells []vt.Cell, hidden []int) []vt.Cell {
	if len(hidden) == 0 {
		return cells
	}
	cells = slices.Clone(cells)
	for _, k := range hidden {
		c := &cells[k]
		if c.Width == 2 && k+1 < len(cells) && cells[k+1].Width == 0 {
			cells[k+1] = vt.Cell{Text: "*", Width: 1, Attr: c.Attr}
		}
		c.Width = min(c.Width, 1)
		if c.Text = "*"; c.Width == 0 {
			c.Text = ""
		}
	}
	return cells
}

// maskLine returns a line with an asterisk in each column of a secret.
func maskLine(l vt.HistoryLine, m *mask.Masker) vt.HistoryLine {
	found := m.Find([]byte(l.Text), l.Cut)
	if len(found) == 0 {
		return l
	}
	l.Runs = slices.Clone(l.Runs)
	var b strings.Builder
	run := 0
	for i, r := range l.Text {
		for ; run < len(l.Runs) && l.Runs[run].End <= i; run++ {
			l.Runs[run].End = b.Len()
		}
		for len(found) > 0 && found[0].End <= i {
			found = found[1:]
		}
		if len(found) > 0 && i >= found[0].Start {
			b.WriteString("**"[:min(vt.RuneWidth(r), 2)])
		} else {
			b.WriteRune(r)
		}
	}
	for ; run < len(l.Runs); run++ {
		l.Runs[run].End = b.Len()
	}
	l.Text = b.String()
	return l
}

// MaskRecord returns a record that Save has written, with asterisks for secrets. It returns the
// record itself if there are none.
//
// The state that only some rows of a record have cell by cell, such as halves of wide
// characters, is left out if there are secrets.
//
// Errors: those of Restore.
func MaskRecord(record []byte, m *mask.Masker) ([]byte, error) {
	if m == nil || len(record) == 0 {
		return record, nil
	}
	snapshot, rest, err := sections(record)
	if err != nil {
		return nil, err
	}
	var s saved
	if err := json.Unmarshal(rest, &s); err != nil || s.Rest == nil {
		return nil, invalidRest(err)
	}
	shown := m.Whole(snapshot)
	isChanged := !slices.Equal(shown, snapshot)
	for _, o := range s.Rest.Odd {
		var text []byte
		for _, c := range o.Cells {
			text = append(text, c.Text...)
		}
		isChanged = isChanged || len(m.Find(text, false)) > 0
	}
	if isChanged {
		s.Rest.Odd, s.Rest.Styles = nil, nil
	}
	maskSaved(&s, m)
	out := addSection([]byte{recordVersion}, sectionSnapshot, shown)
	rest, err = json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return addSection(out, sectionRest, rest), nil
}

// maskSaved masks the texts of the state that a snapshot does not contain.
func maskSaved(s *saved, m *mask.Masker) {
	s.Title, s.Cwd = m.CutText(s.Title), m.Text(s.Cwd)
	for i := range s.Notifications {
		n := &s.Notifications[i]
		n.Title, n.Body = m.CutText(n.Title), m.CutText(n.Body)
	}
	r := s.Rest
	r.WorkDir = []byte(m.Text(string(r.WorkDir)))
	r.Replies, r.RequiredReplies = nil, nil // the program that has asked is gone with the machine
	for i := range r.Styles {
		r.Styles[i].URI, r.Styles[i].LinkID = m.Text(r.Styles[i].URI), m.Text(r.Styles[i].LinkID)
	}
	for i := range r.Odd {
		for k := range r.Odd[i].Marks {
			r.Odd[i].Marks[k].Text = []byte(m.Text(string(r.Odd[i].Marks[k].Text)))
		}
	}
	pens := []*vt.StyleBits{r.Pen}
	for _, c := range []*vt.CursorState{r.Normal, r.Alt} {
		if c != nil {
			pens = append(pens, &c.SavedPen)
		}
	}
	for _, p := range pens {
		if p != nil {
			p.URI, p.LinkID = m.Text(p.URI), m.Text(p.LinkID)
		}
	}
}

func addSection(p []byte, kind byte, body []byte) []byte {
	p = binary.LittleEndian.AppendUint64(append(p, kind), uint64(len(body)))
	return append(p, body...)
}
