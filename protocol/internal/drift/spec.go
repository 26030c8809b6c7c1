package drift

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The sections of SPEC.md whose headings of the third level are names.
const (
	sectionLink    = "The link's messages"
	sectionAPI     = "The api's messages"
	sectionObjects = "Objects"
)

// A specLine is one line of SPEC.md outside of its code blocks, with the
// headings it stands under.
type specLine struct {
	h2, h3, text string
}

// specLines splits a spec into its lines of prose and its code blocks, each
// block with what stands behind its opening fence as the first line.
func specLines(spec string) (lines []specLine, blocks []string) {
	var at specLine
	block := ""
	for line := range strings.Lines(spec) {
		text := strings.TrimSpace(line)
		fence := strings.HasPrefix(text, "```")
		switch {
		case fence && block == "":
			block = strings.TrimPrefix(text, "```") + "\n"
			continue
		case fence:
			blocks = append(blocks, block)
			block = ""
			continue
		case block != "":
			block += line
			continue
		case strings.HasPrefix(text, "## "):
			at.h2, at.h3 = text[3:], ""
		case strings.HasPrefix(text, "### "):
			at.h3 = unquote(text[4:])
		}
		lines = append(lines, specLine{at.h2, at.h3, text})
	}
	return lines, blocks
}

// Blocks returns the code blocks of a spec whose fence is followed by info.
func Blocks(spec, info string) []string {
	var found []string
	_, blocks := specLines(spec)
	for _, b := range blocks {
		if text, ok := strings.CutPrefix(b, info+"\n"); ok {
			found = append(found, text)
		}
	}
	return found
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// CodeSpans returns the words that a spec sets in code, outside of blocks.
func CodeSpans(spec string) []string {
	var words []string
	lines, _ := specLines(spec)
	for _, l := range lines {
		for _, m := range codeSpan.FindAllStringSubmatch(l.text, -1) {
			words = append(words, m[1])
		}
	}
	return words
}

// A specTable is a table and the headings it stands under.
type specTable struct {
	h2, h3 string
	header []string
	rows   [][]string
}

func specTables(spec string) []specTable {
	var tables []specTable
	lines, _ := specLines(spec)
	within := false
	for _, l := range lines {
		row := cells(l.text)
		switch {
		case !strings.HasPrefix(l.text, "|"):
			within = false
		case !within:
			within = true
			tables = append(tables, specTable{l.h2, l.h3, row, nil})
		case !strings.HasPrefix(row[0], "--"):
			last := &tables[len(tables)-1]
			last.rows = append(last.rows, row)
		}
	}
	return tables
}

// SpecFacts reads what a spec says: its headings, and its tables by what
// stands at the top of their first column.
func SpecFacts(spec string) (Facts, error) {
	f := Facts{}
	var errs []error
	add := func(fact string) {
		if f[fact] {
			errs = append(errs, fmt.Errorf("said twice: %s", fact))
		}
		f[fact] = true
	}
	lines, _ := specLines(spec)
	for _, l := range lines {
		switch {
		case !strings.HasPrefix(l.text, "### "):
		case l.h2 == sectionObjects:
			add("object " + l.h3)
		case wireOf(l.h2) != "":
			add(wireOf(l.h2) + " message " + l.h3)
		}
	}
	for _, t := range specTables(spec) {
		for _, row := range t.rows {
			fact, err := t.fact(row)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %q: %w", t.h3, row, err))
				continue
			}
			add(fact)
		}
	}
	return f, errors.Join(errs...)
}

func (t specTable) fact(row []string) (string, error) {
	if len(row) != len(t.header) {
		return "", fmt.Errorf("%d cells in a table of %d columns", len(row), len(t.header))
	}
	switch t.header[0] {
	case "field":
		prefix := "object " + t.h3
		if wire := wireOf(t.h2); wire != "" {
			prefix = wire + " " + t.h3
		}
		if row[2] != "yes" && row[2] != "no" {
			return "", errors.New("required is yes or no")
		}
		return fieldFact(prefix, row[0], row[1], row[2] == "yes"), nil
	case "code":
		return "Code " + row[0], nil
	case "kind":
		return fmt.Sprintf("Kind %s %s", row[0], row[1]), nil
	case "value":
		return t.h3 + " " + row[0], nil
	case "label":
		return "label " + row[0], nil
	case "name":
		return fmt.Sprintf("limit %s %s", row[0], row[1]), nil
	}
	return "", fmt.Errorf("no table begins with %q", t.header[0])
}

// Rows returns the rows of the tables whose first column is headed first.
func Rows(spec, first string) [][]string {
	var rows [][]string
	for _, t := range specTables(spec) {
		if t.header[0] == first {
			rows = append(rows, t.rows...)
		}
	}
	return rows
}

// wireOf returns which wire's messages stand in a section, or "".
func wireOf(section string) string {
	switch section {
	case sectionLink:
		return "link"
	case sectionAPI:
		return "api"
	}
	return ""
}

func cells(row string) []string {
	all := strings.Split(strings.Trim(row, "|"), "|")
	for i, c := range all {
		all[i] = unquote(strings.TrimSpace(c))
	}
	return all
}

func unquote(s string) string {
	if words := codeSpan.FindStringSubmatch(s); words != nil && words[0] == s {
		return words[1]
	}
	return s
}
