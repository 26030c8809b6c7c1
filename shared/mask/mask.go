// Package mask finds secrets in the output of a session, and replaces them by asterisks.
//
// A secret is the value of a variable that was declared secret, or text that matches a pattern.
//
// Invariant: masking keeps lengths. In a stream of bytes an asterisk replaces each byte of a
// secret, so that offsets stay true; in a line of text one replaces each column.
//
// Invariant: a nil Masker finds nothing and costs nothing.
//
// Not here: which variables are secret (package session), the cells of a screen (package
// screen).
package mask

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"holdfast/protocol"
)

// Limits.
const (
	// MinValue is the length of the shortest value that is masked, in bytes. A shorter one is
	// part of too many other words.
	MinValue = 4
	// maxValues is the largest number of values that are masked.
	maxValues = 64
	// maxPatterns and MaxPattern bound a list of patterns, and each pattern in bytes.
	maxPatterns = 32
	MaxPattern  = 1 << 10
	// MaxLine is the length of the longest text that a pattern is sure to find, in bytes.
	MaxLine = 4 << 10

	maxSteps = 4 << 10 // instructions of a pattern
	maxForm  = 4 << 10 // bytes of a form; longer ones are divided
	maxForms = 1 << 10
	minLine  = 16 // bytes of a line of a value of several lines; shorter lines are masked only within the value
)

// A Masker finds secrets. It does not change, and any goroutine may use it.
type Masker struct {
	forms    [][]byte // the values as programs print them, without controls
	longest  int      // length of the longest form
	patterns []*regexp.Regexp
}

// ParseNames returns the names of variables in a list that is separated by spaces or commas. A
// name may contain *, which stands for any characters.
func ParseNames(list string) ([]string, error) {
	names := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r <= ' ' })
	return names, protocol.ValidateSecretEnv(names)
}

// ParsePatterns returns the patterns in a list that is separated by white space. A pattern has
// the syntax of RE2; \x20 stands for a space.
func ParsePatterns(list string) ([]*regexp.Regexp, error) {
	fields := strings.Fields(list)
	if len(fields) > maxPatterns {
		return nil, fmt.Errorf("at most %d patterns are allowed, but there are %d", maxPatterns, len(fields))
	}
	var patterns []*regexp.Regexp
	for _, f := range fields {
		if len(f) > MaxPattern {
			return nil, fmt.Errorf("pattern %.40q is longer than %d bytes", f, MaxPattern)
		}
		tree, err := syntax.Parse(f, syntax.Perl)
		if err != nil {
			return nil, err
		}
		if program, err := syntax.Compile(tree.Simplify()); err != nil || len(program.Inst) > maxSteps {
			return nil, errors.Join(err, fmt.Errorf("pattern %.40q repeats too much: use smaller counts of repetition", f))
		}
		re, err := regexp.Compile(f)
		if err != nil {
			return nil, err
		}
		if re.MatchString("") {
			return nil, fmt.Errorf("pattern %.40q matches the empty text; it must match at least one character", f)
		}
		patterns = append(patterns, re)
	}
	return patterns, nil
}

// IsSecret reports whether a variable has one of the names.
func IsSecret(names []string, variable string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		ok, err := path.Match(n, variable)
		return ok && err == nil
	})
}

// New returns a Masker of the values that variables with the given names have in env (K=V), and
// of the patterns. It returns nil if there is nothing to mask. unmasked are the names of
// variables that are not masked, because their values are shorter than MinValue or more than maxValues;
// and the names, except those with *, of variables that env does not have.
func New(env, names []string, patterns []*regexp.Regexp) (m *Masker, unmasked []string) {
	m = &Masker{patterns: patterns}
	values := 0
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if value == "" || !IsSecret(names, name) {
			continue
		}
		if values == maxValues || len(m.forms) >= maxForms || !m.add(value) {
			unmasked = append(unmasked, name)
			continue
		}
		values++
	}
	for _, n := range names {
		isSet := slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, n+"=") })
		if !isSet && !strings.Contains(n, "*") {
			unmasked = append(unmasked, n)
		}
	}
	slices.Sort(unmasked)
	unmasked = slices.Compact(unmasked)
	if len(m.forms) == 0 && len(patterns) == 0 {
		return nil, unmasked
	}
	slices.SortFunc(m.forms, func(a, b []byte) int { return len(b) - len(a) })
	m.forms = slices.CompactFunc(m.forms, bytes.Equal)
	if len(m.forms) > 0 {
		m.longest = len(m.forms[0])
	}
	return m, unmasked
}

// add adds the forms of a value. It returns false if the value is too short.
func (m *Masker) add(value string) bool {
	if len(withoutControls(value)) < MinValue {
		return false
	}
	for _, form := range formsOf(value) {
		m.addForm(withoutControls(form))
	}
	if lines := strings.Split(value, "\n"); len(lines) > 1 {
		for _, l := range lines {
			if l = withoutControls(l); len(l) >= minLine {
				m.addForm(l)
			}
		}
	}
	return true
}

func (m *Masker) addForm(form string) {
	for len(form) >= MinValue && len(m.forms) < maxForms {
		n := min(len(form), maxForm)
		if rest := len(form) - n; rest > 0 && rest < MinValue {
			n -= MinValue
		}
		m.forms = append(m.forms, []byte(form[:n]))
		form = form[n:]
	}
}

// formsOf returns the value, and the value as shells and programs quote it: in the command line
// of OSC 633 and of OSC 133 (percent), within single quotes, with backslashes, and in JSON.
func formsOf(v string) []string {
	var osc, quoted strings.Builder
	for i := range len(v) {
		c := v[i]
		switch {
		case c == '\\':
			osc.WriteString(`\\`)
		case c <= ' ' || c == ';':
			fmt.Fprintf(&osc, `\x%02x`, c)
		default:
			osc.WriteByte(c)
		}
		if c < 0x80 && !strings.ContainsRune(plainBytes, rune(c)) {
			quoted.WriteByte('\\')
		}
		quoted.WriteByte(c)
	}
	percent := strings.ReplaceAll(url.QueryEscape(v), "+", "%20")
	forms := []string{v, osc.String(), quoted.String(), percent, strings.ReplaceAll(percent, "%2F", "/"), strings.ReplaceAll(v, "'", `'\''`)}
	for _, escapesHTML := range []bool{false, true} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(escapesHTML)
		if enc.Encode(v) == nil {
			forms = append(forms, strings.TrimSuffix(strings.TrimSpace(b.String())[1:], `"`))
		}
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// plainBytes are the bytes that a shell prints without a backslash.
const plainBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,"

func isControl(c byte) bool { return c < 0x20 || c == 0x7f }

// withoutControls returns s without the bytes that a terminal does not show.
func withoutControls(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && isControl(byte(r)) {
			return -1
		}
		return r
	}, s)
}

// A Range is a part of a text, in bytes.
type Range struct{ Start, End int }

// appendValues appends the places of values in a text, of which only those that end behind from
// are needed.
func (m *Masker) appendValues(found []Range, text []byte, from int) []Range {
	for _, f := range m.forms {
		for at := max(0, from-len(f)+1); ; {
			i := bytes.Index(text[at:], f)
			if i < 0 {
				break
			}
			found = append(found, Range{at + i, at + i + len(f)})
			at += i + 1
		}
	}
	return found
}

// appendPatterns appends the places of matches in a line.
func (m *Masker) appendPatterns(found []Range, line []byte) []Range {
	for _, re := range m.patterns {
		for _, f := range re.FindAllIndex(line, -1) {
			if f[0] < f[1] {
				found = append(found, Range{f[0], f[1]})
			}
		}
	}
	return found
}

// begun returns the length of the longest beginning of a value, but no whole one, with which a
// text ends.
func (m *Masker) begun(text []byte) (n int) {
	for _, f := range m.forms {
		for k := min(len(f)-1, len(text)); k > n; k-- {
			if text[len(text)-k] == f[0] && bytes.Equal(text[len(text)-k:], f[:k]) {
				n = k
			}
		}
	}
	return n
}

// Find returns the secrets in a line of text in ascending order, without overlaps. isCut tells
// that the line may continue; a beginning of a value at its end then counts as a secret.
func (m *Masker) Find(line []byte, isCut bool) []Range {
	if m == nil || len(line) == 0 {
		return nil
	}
	found := m.appendPatterns(m.appendValues(nil, line, 0), line)
	if isCut {
		if n := m.begun(line); n >= MinValue {
			found = append(found, Range{len(line) - n, len(line)})
		}
	}
	return merge(found)
}

// merge sorts ranges, and joins those that overlap or touch.
func merge(found []Range) []Range {
	if len(found) < 2 {
		return found
	}
	slices.SortFunc(found, func(a, b Range) int { return a.Start - b.Start })
	out := found[:1]
	for _, f := range found[1:] {
		if last := &out[len(out)-1]; f.Start <= last.End {
			last.End = max(last.End, f.End)
		} else {
			out = append(out, f)
		}
	}
	return out
}

// Text returns a text in which asterisks replace the secrets, one for each character.
func (m *Masker) Text(s string) string { return m.text(s, false) }

// CutText returns a text as Text does, of which only the beginning may be left.
func (m *Masker) CutText(s string) string { return m.text(s, true) }

func (m *Masker) text(s string, isCut bool) string {
	if m == nil || s == "" {
		return s
	}
	found := m.Find([]byte(s), isCut)
	if len(found) == 0 {
		return s
	}
	var b strings.Builder
	at := 0
	for _, f := range found {
		b.WriteString(s[at:f.Start])
		for range s[f.Start:f.End] {
			b.WriteByte('*')
		}
		at = f.End
	}
	b.WriteString(s[at:])
	return b.String()
}

// MayHide reports whether an asterisk in texts may stand for a secret, because one of them has as many asterisks in a
// row as the shortest masked value has bytes.
func MayHide(texts []string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, strings.Repeat("*", MinValue)) })
}

// Texts returns texts as Text does. It returns the slice itself if there is nothing to mask.
func (m *Masker) Texts(all []string) []string {
	if m == nil || len(all) == 0 {
		return all
	}
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = m.Text(s)
	}
	return out
}
