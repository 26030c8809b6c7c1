// Package manual writes man pages from a program's commands: a page for the
// program and one for each of its commands.
//
// It is not cobra/doc: there --read-only is --read-only[=false], no value has a
// name, texts are not indented below their flags, commands are named without a
// word on them, and a page is of a month.
//
// Invariant: the same commands, version and date give the same bytes, so that
// a release can be built again.
//
// Not here: what commands do not say of themselves (a program's manual.go has
// it), and the shells' completions, which the programs print.
package manual

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A Manual is what is written of one program.
type Manual struct {
	Root     *cobra.Command
	Version  string
	Date     time.Time
	Sections []Section // of the program's page, behind its options
	SeeAlso  []string  // other programs
}

// A Section has text, or words that are explained, or both.
type Section struct {
	Title string
	Text  string
	Items []Item
}

// An Item is a word of a list, with what it means.
type Item struct{ Word, Text string }

// Date is the day that pages are of: of $SOURCE_DATE_EPOCH, which has seconds
// since 1970, and not of today, so that they are the same tomorrow.
func Date(env func(string) string) (time.Time, error) {
	text := env("SOURCE_DATE_EPOCH")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("set SOURCE_DATE_EPOCH to the seconds since 1970 that the pages shall bear; it is %q", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// Write writes all pages into a directory.
func (m *Manual) Write(dir string) error {
	m.Root.InitDefaultHelpFlag()
	m.Root.InitDefaultVersionFlag()
	m.Root.InitDefaultCompletionCmd()
	if err := m.checkExamples(m.Root); err != nil {
		return err
	}
	return m.write(dir, m.Root)
}

// write writes the page of a command, and those of its own.
func (m *Manual) write(dir string, cmd *cobra.Command) error {
	err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), m.Page(cmd), 0o644)
	for _, c := range commands(cmd) {
		err = errors.Join(err, m.write(dir, c))
	}
	return err
}

// commands are those of a command that have pages.
func commands(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// Page is the page of the program, or of one of its commands.
func (m *Manual) Page(cmd *cobra.Command) []byte {
	p := &page{}
	p.title(strings.ToUpper(pageName(cmd)), m.Date.Format(time.DateOnly), m.Root.Name()+" "+m.Version)
	p.raw(".nh\n.ad l") // what is copied from a page has no hyphens of roff's
	p.section("NAME")
	p.raw(wrap(escape(pageName(cmd)) + ` \- ` + escape(lowerFirst(cmd.Short))))
	p.section("SYNOPSIS")
	m.synopsis(p, cmd)
	p.section("DESCRIPTION")
	p.text(cmp.Or(cmd.Long, cmd.Short+"."))
	if cmd.HasAvailableSubCommands() {
		p.section("COMMANDS")
		for _, c := range commands(cmd) {
			p.item(reference(pageName(c)), c.Short)
		}
	}
	m.options(p, cmd)
	if cmd == m.Root {
		for _, s := range m.Sections {
			p.section(s.Title)
			p.text(s.Text)
			p.items(s.Items)
		}
	} else {
		p.section("EXIT STATUS")
		p.raw("See " + reference(m.Root.Name()) + ".")
	}
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.example(dedent(cmd.Example))
	}
	p.section("SEE ALSO")
	p.raw(strings.Join(m.seeAlso(cmd), ",\n"))
	return []byte(p.String())
}

func (m *Manual) synopsis(p *page, cmd *cobra.Command) {
	words := strings.Fields(cmd.UseLine())
	bold := len(strings.Fields(cmd.CommandPath()))
	p.raw(strings.TrimSpace(`\fB` + escape(strings.Join(words[:bold], " ")) + `\fR ` + escape(strings.Join(words[bold:], " "))))
	if cmd == m.Root {
		p.raw(".br")
		p.raw(`\fB` + escape(cmd.Name()) + `\fR \fIcommand\fR [flags] [arguments]`)
	}
}

func (m *Manual) options(p *page, cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	p.section("OPTIONS")
	for _, f := range each(cmd.LocalFlags().VisitAll) {
		if f.Hidden {
			continue
		}
		value, usage := unquote(f.Usage, f.Value.Type())
		switch zero := []string{"", "0", "0s", "false", "[]"}; {
		case slices.Contains(zero, f.DefValue):
		case f.Value.Type() == "string":
			usage += fmt.Sprintf(" (default %q)", f.DefValue)
		default:
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		p.item(flagWord(f.Shorthand, f.Name, value, f.NoOptDefVal), usage)
	}
	if cmd != m.Root && cmd.HasAvailableInheritedFlags() {
		p.raw(".PP\n" + wrap("And those of all commands, "+strings.Join(inherited(cmd), " and ")+": see "+reference(m.Root.Name())+"."))
	}
}

func inherited(cmd *cobra.Command) (words []string) {
	for _, f := range each(cmd.InheritedFlags().VisitAll) {
		words = append(words, `\fB`+escape("--"+f.Name)+`\fR`)
	}
	return words
}

// flagWord is a flag as it is written: -i, --id ID. What may be left out is in
// brackets.
func flagWord(short, name, value, without string) string {
	word := `\fB` + escape("--"+name) + `\fR`
	if short != "" {
		word = `\fB` + escape("-"+short) + `\fR, ` + word
	}
	switch {
	case value == "":
		return word
	case without != "":
		return word + `[=\fI` + escape(value) + `\fR]`
	}
	return word + ` \fI` + escape(value) + `\fR`
}

// each is what a visitor visits; it spares us the name of what that is.
func each[T any](visit func(func(T))) (all []T) {
	visit(func(v T) { all = append(all, v) })
	return all
}

// unquote takes the name of a flag's value out of its usage, as cobra's help
// does: what stands in backquotes, else the type.
func unquote(usage, kind string) (value, text string) {
	if before, rest, ok := strings.Cut(usage, "`"); ok {
		if name, after, ok := strings.Cut(rest, "`"); ok {
			return name, before + name + after
		}
	}
	if kind == "bool" {
		return "", usage
	}
	return kind, usage
}

func (m *Manual) seeAlso(cmd *cobra.Command) (all []string) {
	if cmd.HasParent() {
		all = append(all, reference(pageName(cmd.Parent())))
	}
	for _, c := range commands(cmd) {
		all = append(all, reference(pageName(c)))
	}
	if cmd == m.Root {
		for _, name := range m.SeeAlso {
			all = append(all, reference(name))
		}
	}
	return all
}

// dedent takes away the two blanks that begin a line of a command's help.
func dedent(example string) string {
	return strings.ReplaceAll(strings.TrimPrefix(example, "  "), "\n  ", "\n")
}

// checkExamples finds examples, of a command and of its own ones, of what is no more.
func (m *Manual) checkExamples(of *cobra.Command) error {
	var errs []error
	for line := range strings.Lines(of.Example) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != m.Root.Name() {
			continue
		}
		cmd, args, err := m.Root.Find(words[1:])
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("example %q: %w", strings.TrimSpace(line), err))
		}
	}
	for _, c := range commands(of) {
		errs = append(errs, m.checkExamples(c))
	}
	return errors.Join(errs...)
}

// A page is a man page on its way.
type page struct{ strings.Builder }

func (p *page) raw(s string) { p.WriteString(s + "\n") }

// title has the date as it is: with its hyphens escaped it would be none.
func (p *page) title(name, date, source string) {
	p.raw(fmt.Sprintf(`.TH "%s" 1 %s "%s" Holdfast`, escape(name), date, escape(source)))
}

func (p *page) section(title string) { p.raw(".SH " + title) }

func (p *page) items(all []Item) {
	for _, i := range all {
		p.item(`\fB`+escape(i.Word)+`\fR`, i.Text)
	}
}

func (p *page) item(word, text string) {
	p.raw(".TP\n" + word)
	p.raw(prose(text))
}

// table is a line whose words stand in columns.
var table = regexp.MustCompile(`(?m)^ |\S  +\S`)

// text writes paragraphs; those that are laid out with blanks stay as they are.
func (p *page) text(text string) {
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if paragraph = strings.Trim(paragraph, "\n"); paragraph == "" {
			continue
		}
		if i > 0 {
			p.raw(".PP")
		}
		if table.MatchString(paragraph) {
			p.example(paragraph)
		} else {
			p.raw(prose(paragraph))
		}
	}
}

func (p *page) example(text string) {
	p.raw(".nf")
	for line := range strings.Lines(strings.Trim(text, "\n")) {
		p.raw(escape(strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), "\n ")))
	}
	p.raw(".fi")
}

var (
	sentence = regexp.MustCompile(`([.:;?!]) +`)
	blanks   = regexp.MustCompile(`\s+`)
)

// prose fills a paragraph's lines: each clause begins a line of the source, as
// roff wants it.
func prose(s string) string {
	s = blanks.ReplaceAllString(strings.TrimSpace(s), " ")
	lines := strings.Split(sentence.ReplaceAllString(s, "$1\n"), "\n")
	for i := range lines {
		lines[i] = wrap(escape(lines[i]))
	}
	return strings.Join(lines, "\n")
}

// wrap breaks what is already escaped into lines that are no longer than
// mandoc's lint likes, where a word allows it.
func wrap(s string) string {
	var out strings.Builder
	width := 0
	for i, word := range strings.Fields(s) {
		switch {
		case i == 0:
		case width+1+len(word) > 78:
			out.WriteString("\n")
			width = 0
			if strings.HasPrefix(word, ".") {
				word = `\&` + word // no request
			}
		default:
			out.WriteString(" ")
			width++
		}
		out.WriteString(word)
		width += len(word)
	}
	return out.String()
}

var specials = strings.NewReplacer(
	`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`,
)

// escape makes text of what roff would read as its own.
func escape(s string) string {
	s = specials.Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

// reference names another page.
func reference(page string) string { return `\fB` + escape(page) + `\fR(1)` }

func lowerFirst(s string) string {
	if len(s) < 2 || s[1] < 'a' || s[1] > 'z' {
		return s // an abbreviation, or nothing
	}
	return strings.ToLower(s[:1]) + s[1:]
}
