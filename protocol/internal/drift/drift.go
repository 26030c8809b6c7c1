// Package drift holds code, schema.json, SPEC.md and the golden files against
// each other. Only tests import it.
//
// Each of the first three is read into Facts, one line of text for each thing
// that a peer can rely on, so that comparing them is comparing sets. To bring
// schema and golden files up to date:
//
//	go test ./protocol/... -update
//
// Invariant: nothing is believed without being read. What Schema writes is
// parsed again by SchemaFacts, and the constants come from the source.
//
// Not here: what the wires mean (SPEC.md).
package drift

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"holdfast/protocol"
)

// Closed are the types whose values a schema enumerates. The others may get
// values that a peer does not know and has to live with.
var Closed = []string{"Code", "Mode", "Outcome", "Replay", "State"}

// Facts are the things a peer can rely on, one line each.
type Facts map[string]bool

// Diff returns what only got says, marked "+", and what only want says,
// marked "-".
func Diff(got, want Facts) []string {
	var diff []string
	for f := range got {
		if !want[f] {
			diff = append(diff, "+ "+f)
		}
	}
	for f := range want {
		if !got[f] {
			diff = append(diff, "- "+f)
		}
	}
	slices.Sort(diff)
	return diff
}

// Add adds all of others.
func (f Facts) Add(others ...Facts) Facts {
	for _, o := range others {
		maps.Copy(f, o)
	}
	return f
}

// A Wire is what a registry says, as data.
type Wire struct {
	Name     string
	Messages []Object // by type
	Objects  []Object // what messages hold, by name
}

// An Object is a message, or a part of one.
type Object struct {
	Name   string
	Fields []Field
}

// A Field's Type is a word of scalars, the name of an Object or of a Closed
// type, with [] behind it for a list and ? for what may also be null, which
// means the same as absent.
type Field struct {
	Name     string
	Type     string
	Required bool
}

// Describe reads a registry.
func Describe(name string, reg *protocol.Registry) Wire {
	w := Wire{Name: name}
	parts := map[string]reflect.Type{}
	for _, typ := range reg.Types() {
		w.Messages = append(w.Messages, Object{typ, fields(reflect.TypeOf(reg.New(typ)).Elem(), parts)})
	}
	done := map[string]bool{}
	for len(done) < len(parts) {
		for _, n := range slices.Sorted(maps.Keys(parts)) {
			if !done[n] {
				done[n] = true
				w.Objects = append(w.Objects, Object{n, fields(parts[n], parts)})
			}
		}
	}
	slices.SortFunc(w.Objects, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return w
}

// fields lists a struct's fields as encoding/json would, embedded ones in
// place, and adds the structs they name to parts.
func fields(t reflect.Type, parts map[string]reflect.Type) []Field {
	var all []Field
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" {
			all = append(all, fields(f.Type, parts)...)
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" || name == "type" {
			panic(fmt.Sprintf("drift: %s.%s has no name on the wire, or that of the type", t, f.Name))
		}
		all = append(all, Field{name, typeOf(f.Type, name, parts), !strings.Contains(options, "omit")})
	}
	return all
}

func typeOf(t reflect.Type, name string, parts map[string]reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		return typeOf(t.Elem(), name, parts) + "?"
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t == reflect.TypeFor[[]byte]():
		return "base64"
	case t == reflect.TypeFor[protocol.SessionID](), name == "pane_id", name == "writer":
		return "id"
	case slices.Contains(Closed, t.Name()):
		return t.Name()
	}
	switch t.Kind() {
	case reflect.Struct:
		parts[t.Name()] = t
		return t.Name()
	case reflect.Slice:
		return typeOf(t.Elem(), "", parts) + "[]"
	case reflect.Map:
		return "map"
	case reflect.String, reflect.Bool, reflect.Uint32, reflect.Uint64:
		return t.Kind().String()
	case reflect.Int, reflect.Int64:
		return "int"
	case reflect.Float64:
		return "number"
	}
	panic(fmt.Sprintf("drift: no word for the type %s of %s", t, name))
}

// Facts returns what a registry says.
func (w Wire) Facts() Facts {
	f := Facts{}
	for _, m := range w.Messages {
		f[w.Name+" message "+m.Name] = true
		f.Add(m.facts(w.Name + " " + m.Name))
	}
	for _, o := range w.Objects {
		f["object "+o.Name] = true
		f.Add(o.facts("object " + o.Name))
	}
	return f
}

func (o Object) facts(prefix string) Facts {
	f := Facts{}
	for _, field := range o.Fields {
		f[fieldFact(prefix, field.Name, field.Type, field.Required)] = true
	}
	return f
}

func fieldFact(prefix, name, typ string, required bool) string {
	need := "optional"
	if required {
		need = "required"
	}
	return fmt.Sprintf("%s.%s: %s, %s", prefix, name, typ, need)
}
