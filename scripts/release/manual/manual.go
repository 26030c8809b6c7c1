// Package manual writes man pages from a program's commands: a page for the program and one for each
// of its commands.
//
// It replaces cobra/doc, because cobra/doc prints --read-only as --read-only[=false], gives values no
// names, does not indent texts below their flags, lists commands without a description, and dates a
// page by the month only.
//
// Invariant: the same commands, version and date must give the same bytes, so that a release can be
// built again.
//
// Not here: texts that no command has (manual_on.go of each program has them), and completions of
// shells, which the programs print.
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

// A Manual describes one program and its pages.
type Manual struct {
	Root     *cobra.Command
	Version  string
	Date     time.Time
	Sections []Section // sections of the program's page, after its options
	SeeAlso  []string  // names of other programs
}

// A Section has a text, or a list of words with explanations, or both.
type Section struct {
	Title string
	Text  string
	Items []Item
}

// An Item is a word of a list with its explanation.
type Item struct{ Word, Text string }

// Date returns the date of the pages: $SOURCE_DATE_EPOCH, in seconds since 1970. It does not use the
// time of the clock, because a later build must give the same pages.
func Date(env func(string) string) (time.Time, error) {
	text := env("SOURCE_DATE_EPOCH")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q: set it to the date of the pages, in seconds since 1970", text)
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

// write writes the pages of a command and of its subcommands.
func (m *Manual) write(dir string, cmd *cobra.Command) error {
	err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), m.Page(cmd), 0o644)
	for _, c := range commands(cmd) {
		err = errors.Join(err, m.write(dir, c))
	}
	return err
}

// commands returns the subcommands that have pages.
func commands(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// Page returns the page of the program, or of one of its commands.
func (m *Manual) Page(cmd *cobra.Command) []byte {
	p := &page{}
	p.title(strings.ToUpper(pageName(cmd)), m.Date.Format(time.DateOnly), m.Root.Name()+" "+m.Version)
	p.raw(".nh\n.ad l") // roff adds no hyphens, so that text can be copied from a page
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

// flagWord returns a flag as a user writes it: -i, --id ID. A value that may be omitted is in
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

// each returns all values that visit passes to its argument. The type parameter saves an import of
// the values' package.
func each[T any](visit func(func(T))) (all []T) {
	visit(func(v T) { all = append(all, v) })
	return all
}

// unquote returns the name of a flag's value and the usage without backquotes, as cobra's help
// prints them. The name is the text in backquotes, or else the type.
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

// dedent removes the two blanks at the start of each line of an example.
func dedent(example string) string {
	return strings.ReplaceAll(strings.TrimPrefix(example, "  "), "\n  ", "\n")
}

// checkExamples returns an error for each example of a command or a subcommand that is not a valid
// command line of the program.
func (m *Manual) checkExamples(of *cobra.Command) error {
	var errs []error
	for line := range strings.Lines(of.Example) {
		line, _, _ = strings.Cut(line, "#")
		words := shellWords(line)
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

// word matches a word of a command line, with its single quotes.
var word = regexp.MustCompile(`(?:'[^']*'|[^\s'])+`)

// shellWords returns the words of a command line as a shell does, of whose quotes it knows only the
// single ones.
func shellWords(line string) []string {
	words := word.FindAllString(line, -1)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "'", "")
	}
	return words
}

// A page is a man page that is being written.
type page struct{ strings.Builder }

func (p *page) raw(s string) { p.WriteString(s + "\n") }

// title writes the title. It does not escape the date, because roff accepts no escaped hyphens in a
// date.
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

// table matches a line with words in columns.
var table = regexp.MustCompile(`(?m)^ |\S  +\S`)

// text writes paragraphs. It does not fill a paragraph that has words in columns.
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

// prose fills the lines of a paragraph. Each clause begins a line of the source, as roff requires.
func prose(s string) string {
	s = blanks.ReplaceAllString(strings.TrimSpace(s), " ")
	lines := strings.Split(sentence.ReplaceAllString(s, "$1\n"), "\n")
	for i := range lines {
		lines[i] = wrap(escape(lines[i]))
	}
	return strings.Join(lines, "\n")
}

// wrap breaks escaped text into lines that mandoc's lint accepts, unless one word is too long.
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
				word = `\&` + word // otherwise roff would read a request
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

// escape returns text that roff prints unchanged.
func escape(s string) string {
	s = specials.Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

// reference returns a reference to another page.
func reference(page string) string { return `\fB` + escape(page) + `\fR(1)` }

func lowerFirst(s string) string {
	if len(s) < 2 || s[1] < 'a' || s[1] > 'z' {
		return s // an abbreviation, or too short
	}
	return strings.ToLower(s[:1]) + s[1:]
}
