package vttest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A Case is a stream in a file, and the terminal for which it was made. In the file, a line is
// a comment behind "#", one of
//
//	terminal COLS ROWS HISTORY UNICODE
//	resize COLS ROWS
//
// or a write, as a quoted Go string.
type Case struct {
	Name string // name of its file, without ".txt"
	Config
	Steps []Step
}

// String returns the text of the case's file.
func (c *Case) String() string {
	var b strings.Builder
	config := c.withDefaults()
	fmt.Fprintf(&b, "terminal %d %d %d %s\n", config.Cols, config.Rows, config.History, config.Unicode)
	b.WriteString(Format(c.Steps))
	return b.String()
}

// Format returns the text of steps, with one line for each step.
func Format(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		if s.IsResize() {
			fmt.Fprintf(&b, "resize %d %d\n", s.Cols, s.Rows)
		} else {
			fmt.Fprintf(&b, "%s\n", strconv.QuoteToASCII(string(s.Write)))
		}
	}
	return b.String()
}

// Save writes the case into a directory and returns the name of its file.
func (c *Case) Save(dir string) (string, error) {
	name := filepath.Join(dir, c.Name+".txt")
	return name, os.WriteFile(name, []byte(c.String()), 0o644)
}

// Parse parses the text of a case.
func Parse(name string, data []byte) (*Case, error) {
	c := &Case{Name: name}
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := c.parseLine(line); err != nil {
			return nil, fmt.Errorf("case %s line %d: %w", name, i+1, err)
		}
	}
	return c, nil
}

func (c *Case) parseLine(line string) error {
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "terminal":
		_, err := fmt.Sscan(rest, &c.Cols, &c.Rows, &c.History, &c.Unicode)
		return err
	case "resize":
		var s Step
		_, err := fmt.Sscan(rest, &s.Cols, &s.Rows)
		c.Steps = append(c.Steps, s)
		return err
	}
	text, err := strconv.Unquote(line)
	c.Steps = append(c.Steps, Step{Write: []byte(text)})
	return err
}

// LoadCases returns all cases of a directory.
func LoadCases(t testing.TB, dir string) []*Case {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []*Case
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Parse(strings.TrimSuffix(filepath.Base(name), ".txt"), bytes.TrimSpace(data))
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	return cases
}
