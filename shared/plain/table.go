package plain

import (
	"bytes"
	"io"
	"strings"
)

// gap is the number of blanks between the columns of a table.
const gap = 2

// A Table aligns columns, which tabs separate, by the columns of a terminal that their texts take.
type Table struct {
	out  io.Writer
	text bytes.Buffer
}

// NewTable returns a table that Flush writes to out.
func NewTable(out io.Writer) *Table { return &Table{out: out} }

// Write adds lines to the table.
func (t *Table) Write(p []byte) (int, error) { return t.text.Write(p) }

// Flush writes the table with one call of Write, because each call is a packet of the network if the terminal is far
// away.
func (t *Table) Flush() error {
	var widths []int
	var rows [][]string
	for line := range strings.Lines(t.text.String()) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		rows = append(rows, cells)
		for i, cell := range cells[:len(cells)-1] { // nothing stands behind the last cell
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Width(cell))
		}
	}
	var b bytes.Buffer
	for _, cells := range rows {
		for i, cell := range cells {
			b.WriteString(cell)
			if i < len(cells)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]+gap-Width(cell)))
			}
		}
		b.WriteByte('\n')
	}
	t.text.Reset()
	_, err := b.WriteTo(t.out)
	return err
}
