package drift

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
)

// A Const is an exported constant. Type is "" where it has none of its own.
type Const struct {
	Name, Type, Value string
}

// Constants reads a package's exported constants from its source, in the
// order in which they stand there: reflection does not see them.
func Constants(dir string) ([]Const, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	// Our constants need nothing that is imported, so there is no importer and
	// its errors do not matter.
	conf := types.Config{Error: func(error) {}, IgnoreFuncBodies: true}
	pkg, _ := conf.Check(dir, fset, files, nil)
	var objects []*types.Const
	for _, n := range pkg.Scope().Names() {
		if c, ok := pkg.Scope().Lookup(n).(*types.Const); ok && c.Exported() {
			objects = append(objects, c)
		}
	}
	slices.SortFunc(objects, func(a, b *types.Const) int { return int(a.Pos() - b.Pos()) })
	var all []Const
	for _, c := range objects {
		k := Const{Name: c.Name(), Value: c.Val().ExactString()}
		if n, ok := c.Type().(*types.Named); ok {
			k.Type = n.Obj().Name()
		}
		if c.Val().Kind() == constant.String {
			k.Value = constant.StringVal(c.Val())
		}
		all = append(all, k)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no constants in %s", dir)
	}
	return all, nil
}

// Values returns the values of a type.
func Values(all []Const, typ string) []string {
	var values []string
	for _, c := range all {
		if c.Type == typ {
			values = append(values, c.Value)
		}
	}
	return values
}

// ConstFacts returns what constants say. Labels are known by their name,
// other strings without a type say nothing to a peer.
func ConstFacts(all []Const, prefix string) Facts {
	f := Facts{}
	for _, c := range all {
		number := c.Value != "" && strings.Trim(c.Value, "0123456789") == ""
		switch {
		case c.Type != "" && number:
			f[fmt.Sprintf("%s %s %s", c.Type, c.Value, strings.ToLower(c.Name))] = true
		case c.Type != "":
			f[c.Type+" "+c.Value] = true
		case number:
			f[fmt.Sprintf("limit %s%s %s", prefix, c.Name, c.Value)] = true
		case strings.HasPrefix(c.Name, "Label"):
			f["label "+c.Value] = true
		}
	}
	return f
}
