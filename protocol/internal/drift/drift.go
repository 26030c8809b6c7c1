// Package drift compares code, schema.json, SPEC.md and the golden files with each other. Only tests
// import it.
//
// Code, schema and specification are each read into Facts. A fact is one line of text about a
// property that a peer may rely on. Two sources agree if their sets of facts are equal. TypeScript
// makes the types of the npm client from the schema of the api. To update schema, golden files and
// these types, run:
//
//	go test ./protocol/api ./protocol/link -update
//
// Invariant: each source must be read, and no source may be derived in memory from another.
// SchemaFacts parses the text that Schema has written, and the constants come from the source code.
//
// Not here: the meaning of the messages (SPEC.md).
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

// Closed lists the types that a schema enumerates with their values. Other types may get further values, and a
// peer must accept values that it does not know.
var Closed = []string{"Code", "Mode", "Outcome", "Replay", "State"}

// Facts is a set of facts, one line of text each.
type Facts map[string]bool

// Diff returns the sorted differences: facts that are only in got, with the prefix "+", and facts that
// are only in want, with the prefix "-".
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

// Add adds the facts of others to f and returns f.
func (f Facts) Add(others ...Facts) Facts {
	for _, o := range others {
		maps.Copy(f, o)
	}
	return f
}

// A Wire describes the messages of a registry.
type Wire struct {
	Name     string
	Messages []Object                        // the messages, sorted by type
	Objects  []Object                        // the objects in the fields of messages, sorted by name
	Requests map[string]protocol.RequestKind // the rows of requests, by type
}

// An Object describes a message, or an object in the field of a message.
type Object struct {
	Name   string
	Fields []Field

	goType string // of its struct, such as api.Spawn
}

// A Field describes a field of an Object. Its Type is a key of scalars, or the name of an Object or of
// a Closed type. The suffix [] means a list. The suffix ? means that the value may also be null, which
// has the same meaning as an absent field.
type Field struct {
	Name     string
	Type     string
	Required bool

	goField string // of its struct, such as protocol.SpawnSpec.Argv
	word    string // the type of a string that has known values and is not Closed, or ""
}

// Describe returns the description of the messages of a registry.
func Describe(name string, reg *protocol.Registry) Wire {
	w := Wire{Name: name, Requests: map[string]protocol.RequestKind{}}
	for _, k := range reg.Requests() {
		w.Requests[k.Type()] = k
	}
	objects := map[string]reflect.Type{}
	for _, typ := range reg.Types() {
		t := reflect.TypeOf(reg.New(typ)).Elem()
		w.Messages = append(w.Messages, Object{typ, fields(t, objects), t.String()})
	}
	done := map[string]bool{}
	for len(done) < len(objects) {
		for _, n := range slices.Sorted(maps.Keys(objects)) {
			if !done[n] {
				done[n] = true
				w.Objects = append(w.Objects, Object{n, fields(objects[n], objects), objects[n].String()})
			}
		}
	}
	slices.SortFunc(w.Objects, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return w
}

// fields returns the fields of a struct as encoding/json encodes them: the fields of an embedded
// struct stand in its place. It adds the structs in fields to objects.
func fields(t reflect.Type, objects map[string]reflect.Type) []Field {
	var all []Field
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" {
			all = append(all, fields(f.Type, objects)...)
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" || name == "type" {
			panic(fmt.Sprintf("drift: %s.%s has no name in JSON, or the reserved name type", t, f.Name))
		}
		all = append(all, Field{
			Name: name, Type: typeOf(f.Type, name, objects), Required: !strings.Contains(options, "omit"),
			goField: t.String() + "." + f.Name, word: wordOf(f.Type),
		})
	}
	return all
}

// wordOf returns the name of a string type that is not predeclared, and "" for all other types.
func wordOf(t reflect.Type) string {
	if t.Kind() == reflect.String && t.PkgPath() != "" && !slices.Contains(Closed, t.Name()) {
		return t.Name()
	}
	return ""
}

// typeOf returns the Field.Type of a field, and adds the structs in it to objects.
func typeOf(t reflect.Type, name string, objects map[string]reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		return typeOf(t.Elem(), name, objects) + "?"
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
		objects[t.Name()] = t
		return t.Name()
	case reflect.Slice:
		return typeOf(t.Elem(), "", objects) + "[]"
	case reflect.Map:
		return "map"
	case reflect.String, reflect.Bool, reflect.Uint32, reflect.Uint64:
		return t.Kind().String()
	case reflect.Int, reflect.Int64:
		return "int"
	case reflect.Float64:
		return "number"
	}
	panic(fmt.Sprintf("drift: the schema has no type for %s of %s; add one to scalars", t, name))
}

// Facts returns the facts about the messages of w.
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
	for typ, k := range w.Requests {
		f[requestFact(w.Name, typ, replyOf(k), string(k.Repeat), k.IsForShares)] = true
	}
	return f
}

// replyOf returns the type of a request's reply, or "" if it has none.
func replyOf(k protocol.RequestKind) string {
	if k.Reply == nil {
		return ""
	}
	return k.Reply.MessageType()
}

// requestFact returns the fact about one row of a table of requests.
func requestFact(wire, typ, reply, repeat string, isForShares bool) string {
	return fmt.Sprintf("%s request %s: reply %q, repeatable %s, for share links %t", wire, typ, reply, repeat, isForShares)
}

// facts returns the facts about the fields of o.
func (o Object) facts(prefix string) Facts {
	f := Facts{}
	for _, field := range o.Fields {
		f[fieldFact(prefix, field.Name, field.Type, field.Required)] = true
	}
	return f
}

// fieldFact returns the fact about one field.
func fieldFact(prefix, name, typ string, required bool) string {
	presence := "optional"
	if required {
		presence = "required"
	}
	return fmt.Sprintf("%s.%s: %s, %s", prefix, name, typ, presence)
}
