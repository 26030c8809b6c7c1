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

// A Const is an exported constant. If it has no type of its own, Type is "".
type Const struct {
	Name, Type, Value string
}

// Constants returns the exported constants of the package in dir, in the order of its source. It
// parses the source, because reflection does not provide constants.
func Constants(dir string) ([]Const, error) {
	fset := token.NewFileSet()
	files, err := parse(fset, dir)
	if err != nil {
		return nil, err
	}
	// The constants use no imported name. The checker therefore needs no importer, and its
	// errors about imports can be ignored.
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
		return nil, fmt.Errorf("no exported constants in %s; is it the directory of the package?", dir)
	}
	return all, nil
}

// parse parses the files of the package in dir, except its tests.
func parse(fset *token.FileSet, dir string) (files []*ast.File, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Comments returns the comments of the structs of the package in dir and of their fields, each as one
// line. The keys have the forms api.Spawn and api.Spawn.Token.
func Comments(dir string) (map[string]string, error) {
	files, err := parse(token.NewFileSet(), dir)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	add := func(key string, comments ...*ast.CommentGroup) {
		for _, c := range comments {
			if text := strings.Join(strings.Fields(c.Text()), " "); text != "" {
				all[key] = text
			}
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			gen, _ := d.(*ast.GenDecl)
			if gen == nil || gen.Tok != token.TYPE {
				continue
			}
			for _, spec := range gen.Specs {
				typ := spec.(*ast.TypeSpec)
				key := f.Name.Name + "." + typ.Name.Name
				add(key, gen.Doc, typ.Doc)
				if st, ok := typ.Type.(*ast.StructType); ok {
					for _, field := range st.Fields.List {
						for _, n := range field.Names {
							add(key+"."+n.Name, field.Doc, field.Comment)
						}
					}
				}
			}
		}
	}
	return all, nil
}

// Values returns the values of the constants of a type.
func Values(all []Const, typ string) []string {
	var values []string
	for _, c := range all {
		if c.Type == typ {
			values = append(values, c.Value)
		}
	}
	return values
}

// ConstFacts returns the facts about constants. A constant without a type is a limit if it is a
// number, and a label if its name begins with Label. Other strings without a type are no fact,
// because peers do not use them.
func ConstFacts(all []Const, prefix string) Facts {
	f := Facts{}
	for _, c := range all {
		isNumber := c.Value != "" && strings.Trim(c.Value, "0123456789") == ""
		switch {
		case c.Type != "" && isNumber:
			f[fmt.Sprintf("%s %s %s", c.Type, c.Value, strings.ToLower(c.Name))] = true
		case c.Type != "":
			f[c.Type+" "+c.Value] = true
		case isNumber:
			f[fmt.Sprintf("limit %s%s %s", prefix, c.Name, c.Value)] = true
		case strings.HasPrefix(c.Name, "Label"):
			f["label "+c.Value] = true
		}
	}
	return f
}
