package tidy

import (
	"slices"
	"strings"
	"testing"
)

const fixture = "" +
	"# Title\n" +
	"| word | meaning |\n| --- | --- |\n| `ring` | a word, no package |\n" +
	"\n" +
	"| package | may import, of ours |\n|---|:---|\n" +
	"| `wire` | nothing |\n" +
	"| `wire/a`, `wire/b` | `wire` |\n" +
	"| `big/...` | `wire/...` (all of it) |\n" +
	"| `big/small` | nothing: it is a leaf |\n" +
	"Text between.\n" +
	"  | `no/table` | of any kind |\n" +
	"\n" +
	"| module | home | why |\n| --- | --- | --- |\n" +
	"| `example.com/log` | `big/...` | |\n" +
	"| `example.com/log/v2` | `wire/a` | it is newer |\n"

func TestParse(t *testing.T) {
	r, err := parse(fixture)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		"wire": {}, "wire/a": {"wire"}, "wire/b": {"wire"}, "big": {"wire/..."}, "big/x/y": {"wire/..."}, "big/small": {},
	} {
		if got, ok := r.row(path); !ok || !slices.Equal(got, want) {
			t.Errorf("%s: got %q %v, want %q", path, got, ok, want)
		}
	}
	for _, path := range []string{"ring", "no/table", "wire/c", "bigger"} {
		if got, ok := r.row(path); ok {
			t.Errorf("%s has a row: %q", path, got)
		}
	}
	if got := r.homes["example.com/log/v2"]; len(r.homes) != 2 || !slices.Equal(got, []string{"wire/a"}) {
		t.Errorf("homes: %v", r.homes)
	}
}

func TestParseMistakes(t *testing.T) {
	const ends = "\n| module | home |\n| - | - |\n| `m` | `p` |\n"
	for _, tt := range []struct{ name, document, says string }{
		{"no tables", "# Title\n", "lacks the table"},
		{"no modules", "| package | may import |\n| `p` | nothing |\n", "lacks the table"},
		{"two rows", "| package | |\n| `p` | nothing |\n| `p` | `q` |\n" + ends, "line 3: a second row for p"},
		{"no quotes", "| package | |\n| p | nothing |\n" + ends, `line 2: "p" names nothing`},
		{"an empty cell", "| package | |\n| `p` | |\n" + ends, `does not say "nothing"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := parse(tt.document); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want it to say %q", err, tt.says)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	r, err := parse(fixture)
	if err != nil {
		t.Fatal(err)
	}
	outside := []string{"example.com/log", "example.com/log/v2", "example.com/new"}
	good := func() map[string]*pkg {
		all := map[string]*pkg{}
		for path, imports := range map[string][]string{
			"wire": {"fmt", "net/http"}, "wire/a": {"m/wire", "example.com/log/v2/x"}, "wire/b": nil,
			"big": {"m/wire/a", "example.com/log"}, "big/small": nil,
		} {
			_, name, _ := strings.Cut("/"+path, "/")
			name = name[strings.LastIndex(name, "/")+1:]
			all["m/"+path] = &pkg{ImportPath: "m/" + path, Name: name, Doc: "Package " + name + " is one.", GoFiles: []string{"x.go"}, Imports: imports}
		}
		return all
	}
	for _, tt := range []struct {
		name string
		harm func(map[string]*pkg)
		want string // "" if the rules are satisfied
	}{
		{"as it should be", func(map[string]*pkg) {}, ""},
		{"a layer upwards", func(p map[string]*pkg) { p["m/wire"].Imports = []string{"m/big"} }, "wire imports big, which its row does not allow"},
		{"a neighbour", func(p map[string]*pkg) { p["m/wire/a"].Imports = []string{"m/wire/b"} }, "wire/a imports wire/b, which"},
		{"no home", func(p map[string]*pkg) { p["m/wire"].Imports = []string{"example.com/log"} }, "wire imports example.com/log, and is no home of example.com/log"},
		{"the home of an older module", func(p map[string]*pkg) { p["m/big"].Imports = []string{"example.com/log/v2"} }, "no home of example.com/log/v2"},
		{"a module without a row", func(p map[string]*pkg) { p["m/big"].Imports = []string{"example.com/new/x"} }, "no home of example.com/new"},
		{"no row", func(p map[string]*pkg) {
			p["m/extra"] = &pkg{Name: "extra", Doc: "Package extra is.", GoFiles: []string{"x.go"}}
		}, "extra has no row"},
		{"no package", func(p map[string]*pkg) { delete(p, "m/wire/b") }, "there is no package wire/b"},
		{"no comment", func(p map[string]*pkg) { p["m/big"].Doc = "" }, "big has no comment"},
		{"another's comment", func(p map[string]*pkg) { p["m/big"].Doc = "Package small is." }, "big has no comment"},
		{"a program's comment", func(p map[string]*pkg) { p["m/big"].Name, p["m/big"].Doc = "main", "Command big runs." }, ""},
		{"imports of tests do not count", func(p map[string]*pkg) { p["m/wire"].TestImports = []string{"m/big"} }, ""},
		{"but where there is nothing else", func(p map[string]*pkg) {
			p["m/wire"].GoFiles, p["m/wire"].XTestImports = nil, []string{"m/big"}
		}, "wire imports big"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pkgs := good()
			tt.harm(pkgs)
			got := strings.Join(check(r, "m", outside, pkgs), "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
