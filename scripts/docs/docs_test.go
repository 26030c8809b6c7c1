package docs

import (
	"cmp"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxNotRun is the largest number of blocks that may be marked as not run.
const maxNotRun = 16

func at(b block) string { return fmt.Sprintf("%s:%d: ", b.page, b.line) }

// Every block must run, or must be marked as not run with a reason.
func TestBlocks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes that a page leaves behind are found in /proc")
	}
	var not []string
	for _, page := range pages(t) {
		all := blocks(t, page)
		for _, wrong := range check(all) {
			t.Error(wrong)
		}
		for _, b := range all {
			if why, ok := b.marks["not run"]; ok && b.runs() {
				not = append(not, at(b)+why)
			}
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			var w *world
			for i, b := range all {
				if !b.runs() || b.isPart() {
					continue
				}
				if w == nil {
					w = newWorld(t)
					if page == hostsPage {
						w.reachHost()
					}
				}
				if _, not := b.marks["not run"]; not {
					w.parse(b)
					continue
				}
				if !w.run(b, i) {
					return
				}
			}
		})
	}
	t.Logf("%d blocks are not run:\n%s", len(not), strings.Join(not, "\n"))
	if len(not) > maxNotRun {
		t.Errorf("at most %d blocks may be marked as not run", maxNotRun)
	}
}

// run runs the nth block of a page. It returns false if the page cannot continue.
func (w *world) run(b block, n int) bool {
	t := w.t
	if w.lacks(b) {
		return false
	}
	if first := b.marks["first"]; first != "" {
		if out, err := w.shell(w.path("home"), first); err != nil {
			t.Errorf("%sthe command of the mark first: %v\n%s", at(b), err, out)
			return false
		}
	}
	out, err := w.do(b, n)
	switch {
	case err != nil:
		t.Errorf("%s%v; the output is\n%s", at(b), err, out)
	case b.prints != nil && b.does() && !like(out, *b.prints):
		t.Errorf("%sthe output should be\n%s\nbut is\n%s", at(b), *b.prints, out)
	default:
		return true
	}
	return false
}

// parse fails the test if a block that is not run has a syntax error.
func (w *world) parse(b block) {
	if w.lacks(b) {
		return
	}
	path := w.path("tmp", "not-run.js") // node requires this suffix
	if err := os.WriteFile(path, []byte(b.text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	out, err := "", error(nil)
	switch b.lang {
	case "sh":
		out, err = w.command(w.root, "bash", "-n", path)
	case "js":
		out, err = w.command(w.root, "node", "--check", path)
	case "python":
		out, err = w.command(w.root, "python3", "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())", path)
	case "go":
		_, err = format.Source([]byte(b.text))
	}
	if err != nil {
		w.t.Errorf("%sthe block that is not run has a syntax error: %v\n%s", at(b), err, out)
	}
}

// interpreters are programs that may be missing, by language. required is the variable that demands the
// program.
var interpreters = map[string]struct{ program, suffix, required string }{
	"js": {"node", ".js", "HOLDFAST_REQUIRE_ORACLE"}, "python": {"python3", ".py", "HOLDFAST_REQUIRE_PYTHON"},
}

// lacks reports whether a program that the page needs is missing.
func (w *world) lacks(b block) bool {
	if needs := b.marks["needs"]; needs != "" {
		if out, err := w.shell(w.path("home"), needs); err != nil {
			w.t.Logf("%sthe remainder of the page is not run, because it needs %s: %v\n%s", at(b), needs, err, out)
			return true
		}
	}
	i, ok := interpreters[b.lang]
	if !ok {
		return false
	}
	_, err := os.Stat(w.path("bin", i.program))
	if err != nil && os.Getenv(i.required) == "1" {
		w.t.Errorf("%s%s is not installed", at(b), i.program)
	} else if err != nil {
		w.t.Logf("%sthe remainder of the page is not run, because %s is not installed", at(b), i.program)
	}
	return err != nil
}

func (w *world) do(b block, n int) (out string, err error) {
	dir := w.path("home")
	if b.marks["in"] == "source" {
		dir = source
	}
	name, kept := b.marks["file"]
	if b.lang == "go" {
		return w.doGo(b, dir, cmp.Or(name, fmt.Sprintf("block%d.go", n)), kept)
	}
	if kept {
		return "", os.WriteFile(w.path("home", name), []byte(b.text), 0o700)
	}
	if b.lang == "sh" {
		return w.shell(dir, b.text)
	}
	i := interpreters[b.lang]
	path := w.path("home", fmt.Sprintf("block%d%s", n, i.suffix))
	if err := os.WriteFile(path, []byte(b.text), 0o600); err != nil {
		return "", err
	}
	return w.command(dir, i.program, path)
}

// doGo builds a Go program, and runs it unless kept is true. It completes a fragment to a program, which it
// builds but does not run.
func (w *world) doGo(b block, dir, name string, kept bool) (string, error) {
	text := b.text
	if !b.whole() {
		text = wrapped(b.text)
	} else if tidy, err := format.Source([]byte(text)); err != nil || string(tidy) != text {
		return "", fmt.Errorf("the program is not formatted by gofmt, %v", err)
	}
	if err := public(text); err != nil {
		return "", err
	}
	path, program := w.path("tmp", name), w.path("bin", strings.TrimSuffix(name, ".go"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", err
	}
	if out, err := w.command(source, "go", "build", "-o", program, path); err != nil {
		return out, err
	}
	if kept || !b.whole() {
		return "", nil
	}
	return w.command(dir, program)
}

// wrapped makes a program of a fragment, in which ctx, c, s and a have the types that they have in the
// guides.
func wrapped(text string) string {
	imports, known := "", []string{
		"context", "errors", "fmt", "io", "log", "os", "time", "holdfast/protocol", "holdfast/protocol/api", "holdfast/proxy/client", "holdfast/proxy/policy",
	}
	params := "ctx context.Context, c *client.Client, s *client.Spawned, a *client.Attachment"
	for _, path := range known {
		if regexp.MustCompile(`\b` + filepath.Base(path) + `\.`).MatchString(params + text) {
			imports += strconv.Quote(path) + "\n"
		}
	}
	if strings.Contains(text, "err :=") || strings.Contains(text, "err =") {
		text += "_ = err\n"
	}
	return "package main\nimport (\n" + imports + ")\nfunc piece(" + params + ") {\n{\n" + text + "}\n}\nfunc main() {}\n"
}

// public returns an error if the program imports a package of this module that is not public.
func public(text string) error {
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ImportsOnly)
	if err != nil {
		return err
	}
	for _, i := range f.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		if strings.HasPrefix(path, "holdfast/") && !slices.ContainsFunc([]string{"protocol", "proxy/client", "proxy/policy"}, func(p string) bool {
			return path == "holdfast/"+p || strings.HasPrefix(path, "holdfast/"+p+"/")
		}) {
			return fmt.Errorf("%s is not a public package", path)
		}
	}
	return nil
}
