package plain

import (
	"bytes"
	"io"
	"text/tabwriter"
)

// A Table aligns columns, which tabs separate.
type Table struct {
	*tabwriter.Writer
	out  io.Writer
	text bytes.Buffer
}

// NewTable returns a table that Flush writes to out.
func NewTable(out io.Writer) *Table {
	t := &Table{out: out}
	t.Writer = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	return t
}

// Flush writes the table with one call of Write. A tabwriter would write each cell by itself, which is a system call for
// each, and a packet of the network if the terminal is far away.
func (t *Table) Flush() error {
	if err := t.Writer.Flush(); err != nil {
		return err
	}
	_, err := t.text.WriteTo(t.out)
	return err
}
