package mcp

import (
	"context"
	"strings"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// A shown is the screen of a session for an agent. Its lines are joined from the rows into which they were wrapped.
type shown struct {
	lines        []string // without blanks at their ends
	cols, rows   int
	line, column int    // place of the cursor in lines
	before       string // text before the cursor in its row, without blanks around it; "" if the cursor is hidden
	isAlternate  bool
	input        protocol.InputMode
}

// shown returns the present screen of a session, or the last one if the session has ended.
func (s *server) shown(ctx context.Context, id protocol.SessionID) (*shown, error) {
	content, err := s.Client.Screen(ctx, id, client.ScreenOptions{Format: protocol.ScreenCells})
	if err != nil {
		return nil, err
	}
	return newShown(content), nil
}

// newShown converts a screen of the format cells. The format text does not tell in which line the cursor is.
func newShown(c *protocol.ScreenContent) *shown {
	v := &shown{cols: c.Cols, rows: c.Rows, line: c.Cursor.Y, column: c.Cursor.X, isAlternate: c.Alternate, input: c.Input}
	rows := 0 // rows of the last line
	for y, row := range c.Cells {
		if y == 0 || !row.Wrapped {
			v.lines, rows = append(v.lines, ""), 0
		}
		last := &v.lines[len(v.lines)-1]
		if rows > 0 { // a row that was wrapped is full, but lacks the blanks at its end
			*last += strings.Repeat(" ", max(0, c.Cols-rowColumns(c.Cells[y-1])))
		}
		if y == c.Cursor.Y && !c.Truncated { // otherwise it is not known which row is the first one
			v.line, v.column = len(v.lines)-1, rows*c.Cols+c.Cursor.X
			if !c.Cursor.Hidden {
				v.before = strings.TrimSpace(rowText(row, c.Cursor.X))
			}
		}
		*last += rowText(row, c.Cols)
		rows++
	}
	for i := range v.lines {
		v.lines[i] = strings.TrimRight(v.lines[i], " ")
	}
	return v
}

// rowText returns the text of a row before a column.
func rowText(row protocol.ScreenLine, column int) string {
	var b strings.Builder
	for _, cell := range row.Cells {
		if column -= cell.Columns(); column < 0 {
			break
		}
		if cell.Text == "" {
			b.WriteString(strings.Repeat(" ", cell.Columns()))
		}
		b.WriteString(cell.Text)
	}
	return b.String()
}

// rowColumns returns the number of columns of a row that its cells take.
func rowColumns(row protocol.ScreenLine) (n int) {
	for _, cell := range row.Cells {
		n += cell.Columns()
	}
	return n
}
