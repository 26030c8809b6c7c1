package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// source is the root directory of the repository.
var source, _ = filepath.Abs(filepath.Join("..", ".."))

// languages are the languages whose blocks run.
var languages = []string{"sh", "go", "js", "python"}

// A block is the text between two fences of a page.
type block struct {
	page, lang string
	line       int // the line of its first fence, from 1
	text       string
	marks      map[string]string // from the comments above it
	prints     *string           // the block of text that follows it, or nil
}

// runs reports whether the block is in a language that runs.
func (b block) runs() bool { return slices.Contains(languages, b.lang) }

// whole reports whether the block is a complete Go program.
func (b block) whole() bool { return b.lang == "go" && clause.MatchString(b.text) }

var clause = regexp.MustCompile(`(?m)^package \w+$`)

// pages returns the pages whose blocks run, relative to the root directory.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(source, ".github", "docs", "*.md"))
	testkit.Must(t, err)
	names := []string{"README.md"}
	for _, path := range all {
		names = append(names, ".github/docs/"+filepath.Base(path))
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(source, name))
	testkit.Must(t, err)
	return string(b)
}

var (
	mark  = regexp.MustCompile(`^<!-- ([a-z ]+): (.+) -->$`)
	marks = []string{"not run", "part of", "file", "first", "needs", "in"}
)

// blocks returns the blocks of a page.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	var all []block
	var open *block
	above, apart := map[string]string{}, true // apart: there is other text since the last block
	for i, line := range strings.Split(read(t, page), "\n") {
		fence := strings.HasPrefix(line, "```")
		m := mark.FindStringSubmatch(line)
		switch {
		case open != nil && fence:
			if last := len(all) - 1; open.lang == "text" && !apart && last >= 0 && all[last].runs() {
				all[last].prints = &open.text
			}
			all, open, apart, above = append(all, *open), nil, false, map[string]string{}
		case open != nil:
			open.text += line + "\n"
		case fence:
			lang, _, _ := strings.Cut(strings.TrimPrefix(line, "```"), " ")
			open = &block{page: page, lang: lang, line: i + 1, marks: above}
		case m != nil:
			above[m[1]], apart = m[2], true
		case line != "":
			above, apart = map[string]string{}, true
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block has no end", page, open.line)
	}
	return all
}

// check returns the mistakes in the marks of a page's blocks.
func check(all []block) (wrong []string) {
	for i, b := range all {
		if !b.runs() {
			continue
		}
		for name := range b.marks {
			if !slices.Contains(marks, name) {
				wrong = append(wrong, at(b)+"unknown mark "+name)
			}
		}
		if in := b.marks["in"]; in != "" && in != "source" {
			wrong = append(wrong, at(b)+"the only value of in is source")
		}
		if name, ok := b.marks["part of"]; ok {
			if text, err := os.ReadFile(filepath.Join(source, name)); err != nil || !strings.Contains(string(text), b.text) {
				wrong = append(wrong, at(b)+"it is no part of "+name)
			}
		}
		if why, ok := b.marks["not run"]; ok && len(why) < 10 {
			wrong = append(wrong, at(b)+"the reason is too short")
		}
		name, ok := b.marks["file"]
		if ok && !slices.ContainsFunc(all[i+1:], func(later block) bool {
			return later.does() && strings.Contains(later.text+later.marks["first"], strings.TrimSuffix(name, filepath.Ext(name)))
		}) {
			wrong = append(wrong, at(b)+"no later block uses "+name)
		}
	}
	return wrong
}

// does reports whether the block is run, not only kept as a file.
func (b block) does() bool {
	_, not := b.marks["not run"]
	_, kept := b.marks["file"]
	return b.runs() && !not && !kept && !b.isPart()
}

// isPart reports whether the block shows a part of a file that other tests run.
func (b block) isPart() bool {
	_, is := b.marks["part of"]
	return is
}

// like reports whether text matches a pattern, in which … stands for any text.
func like(text, pattern string) bool {
	tidy := func(s string) string {
		s = strings.ReplaceAll(s, "\r", "")
		lines := strings.Split(strings.TrimSpace(s), "\n")
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		return strings.Join(lines, "\n")
	}
	parts := strings.Split(tidy(pattern), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?s)\A` + strings.Join(parts, ".*") + `\z`).MatchString(tidy(text))
}
