package drift

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The sections of SPEC.md in which a heading of the third level is the name of a message or object.
const (
	sectionLink    = "The link's messages"
	sectionAPI     = "The api's messages"
	sectionGate    = "The gate's messages"
	sectionObjects = "Objects"
)

// A specLine is a line of SPEC.md outside of its code blocks, with the headings above it.
type specLine struct {
	h2, h3, text string
}

// specLines splits a specification into the lines outside of code blocks and the code blocks. The
// first line of each block is the text after its opening fence.
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

// Blocks returns the code blocks of a specification with the text info after their opening fence.
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

// CodeSpans returns the code spans in the lines outside of code blocks.
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

// A specTable is a table with the headings above it.
type specTable struct {
	h2, h3 string
	header []string
	rows   [][]string
}

// specTables returns all tables of a specification.
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

// SpecFacts returns the facts in a specification. They come from its headings and from its tables.
// The heading of a table's first column tells the kind of the table.
func SpecFacts(spec string) (Facts, error) {
	f := Facts{}
	var errs []error
	add := func(fact string) {
		if f[fact] {
			errs = append(errs, fmt.Errorf("SPEC.md has this twice: %s", fact))
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

// fact returns the fact in a row of the table.
func (t specTable) fact(row []string) (string, error) {
	if len(row) != len(t.header) {
		return "", fmt.Errorf("the row has %d cells, but the table has %d columns", len(row), len(t.header))
	}
	switch t.header[0] {
	case "field":
		prefix := "object " + t.h3
		if wire := wireOf(t.h2); wire != "" {
			prefix = wire + " " + t.h3
		}
		if row[2] != "yes" && row[2] != "no" {
			return "", fmt.Errorf("the cell required must be yes or no, but it is %q", row[2])
		}
		return fieldFact(prefix, row[0], row[1], row[2] == "yes"), nil
	case "request":
		isForShares := false
		if wireOf(t.h2) == "api" {
			isForShares = row[3] == "yes"
		}
		return requestFact(wireOf(t.h2), row[0], row[1], row[2], isForShares), nil
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
	return "", fmt.Errorf("the first column of a table must not be %q, because no facts are known for it", t.header[0])
}

// Rows returns the rows of all tables that have the heading first in their first column.
func Rows(spec, first string) [][]string {
	var rows [][]string
	for _, t := range specTables(spec) {
		if t.header[0] == first {
			rows = append(rows, t.rows...)
		}
	}
	return rows
}

// wireOf returns the wire that a section describes, or "" if the section describes none.
func wireOf(section string) string {
	switch section {
	case sectionLink:
		return "link"
	case sectionAPI:
		return "api"
	case sectionGate:
		return "gate"
	}
	return ""
}

// cells returns the cells of a table's row, without the marks of code spans.
func cells(row string) []string {
	all := strings.Split(strings.Trim(row, "|"), "|")
	for i, c := range all {
		all[i] = unquote(strings.TrimSpace(c))
	}
	return all
}

// unquote returns the content of s if s is a single code span, and s otherwise.
func unquote(s string) string {
	if words := codeSpan.FindStringSubmatch(s); words != nil && words[0] == s {
		return words[1]
	}
	return s
}
