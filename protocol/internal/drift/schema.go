package drift

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"holdfast/protocol"
)

// scalars maps each Field.Type that is not an object to its JSON Schema.
var scalars = map[string]object{
	"base64": {{"type", "string"}, {"contentEncoding", "base64"}},
	"bool":   {{"type", "boolean"}},
	"id":     {{"type", "string"}, {"pattern", "^[a-zA-Z0-9_-]{1,64}$"}},
	"int":    {{"type", "integer"}},
	"map":    {{"type", "object"}, {"additionalProperties", object{{"type", "string"}}}},
	"number": {{"type", "number"}},
	"string": {{"type", "string"}},
	"time":   {{"type", "string"}, {"format", "date-time"}},
	"uint32": {{"type", "integer"}, {"minimum", 0}, {"maximum", 4294967295}},
	"uint64": {{"type", "integer"}, {"minimum", 0}},
}

const refPrefix = "#/$defs/"

// An object is a JSON object whose members keep their order.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON encodes the members in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	for i, m := range o {
		b, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		sep := ","
		if i == 0 {
			sep = "{"
		}
		fmt.Fprintf(&out, "%s%q:%s", sep, m.key, b)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// members returns the members as encoding/json decodes them.
func (o object) members() map[string]any {
	m := map[string]any{}
	for _, member := range o {
		switch v := member.value.(type) {
		case object:
			m[member.key] = v.members()
		case int:
			m[member.key] = float64(v)
		default:
			m[member.key] = v
		}
	}
	return m
}

// Schema returns the JSON Schema of a wire, with the comments of the structs as descriptions. It has a definition for each message, for each object in a
// message, and for each Closed type that is used. The schema is the union of the messages. It allows
// unknown fields, because peers must ignore them.
func Schema(w Wire, consts []Const, comments map[string]string) ([]byte, error) {
	var union []object
	var defs object
	used := map[string]bool{}
	for _, m := range w.Messages {
		union = append(union, object{{"$ref", refPrefix + m.Name}})
		def := definition(m, true, used, consts, comments)
		if k, ok := w.Requests[m.Name]; ok {
			def = append(def, requestMembers(k)...)
		}
		defs = append(defs, member{m.Name, def})
	}
	for _, o := range w.Objects {
		defs = append(defs, member{o.Name, definition(o, false, used, consts, comments)})
	}
	for _, c := range Closed {
		if used[c] {
			defs = append(defs, member{c, object{{"type", "string"}, {"enum", Values(consts, c)}}})
		}
	}
	b, err := json.Marshal(object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"$id", "urn:holdfast:" + w.Name + ":v1"},
		{"title", "Control messages of Holdfast's " + w.Name},
		{"oneOf", union},
		{"$defs", defs},
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// definition returns the schema of o, and adds the types of its fields to used.
func definition(o Object, isMessage bool, used map[string]bool, consts []Const, comments map[string]string) object {
	var properties object
	required := []string{}
	if isMessage {
		properties = object{{"type", object{{"const", o.Name}}}}
		required = []string{"type"}
	}
	for _, f := range o.Fields {
		schema := describe(comments[f.goField])
		if known := Values(consts, f.word); f.word != "" && len(known) > 0 {
			schema = append(schema, member{"examples", known})
		}
		properties = append(properties, member{f.Name, append(schema, typeSchema(f.Type)...)})
		used[strings.TrimRight(f.Type, "[]?")] = true
		if f.Required {
			required = append(required, f.Name)
		}
	}
	return append(describe(comments[o.goType]), object{{"type", "object"}, {"properties", properties}, {"required", required}}...)
}

// describe returns the description of a schema, if there is one.
func describe(comment string) object {
	if comment == "" {
		return nil
	}
	return object{{"description", comment}}
}

// requestMembers returns the members of a message's definition that only a request has. JSON Schema
// ignores members that it does not know.
func requestMembers(k protocol.RequestKind) object {
	var o object
	if reply := replyOf(k); reply != "" {
		o = append(o, member{"reply", reply})
	}
	o = append(o, member{"repeatable", k.Repeat})
	if k.IsForShares {
		o = append(o, member{"for_share_links", true})
	}
	return o
}

// typeSchema returns the schema of a Field.Type.
func typeSchema(typ string) object {
	if inner, ok := strings.CutSuffix(typ, "?"); ok {
		return object{{"anyOf", []any{typeSchema(inner), object{{"type", "null"}}}}}
	}
	if item, ok := strings.CutSuffix(typ, "[]"); ok {
		return object{{"type", "array"}, {"items", typeSchema(item)}}
	}
	if s, ok := scalars[typ]; ok {
		return s
	}
	return object{{"$ref", refPrefix + typ}}
}

// A schemaNode contains those members of a JSON Schema that Schema writes.
type schemaNode struct {
	Ref        string                     `json:"$ref"`
	Type       string                     `json:"type"`
	Items      json.RawMessage            `json:"items"`
	Const      string                     `json:"const"`
	Enum       []string                   `json:"enum"`
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
	OneOf      []schemaNode               `json:"oneOf"`
	Defs       map[string]schemaNode      `json:"$defs"`

	Description string   `json:"description"`
	Examples    []string `json:"examples"`

	Reply         string `json:"reply"`
	Repeatable    string `json:"repeatable"`
	ForShareLinks bool   `json:"for_share_links"`
}

// SchemaFacts returns the facts in the schema of the named wire.
func SchemaFacts(wire string, schema []byte) (Facts, error) {
	var doc schemaNode
	if err := json.Unmarshal(schema, &doc); err != nil {
		return nil, err
	}
	f := Facts{}
	for _, n := range doc.OneOf {
		f[wire+" message "+strings.TrimPrefix(n.Ref, refPrefix)] = true
	}
	for name, def := range doc.Defs {
		prefix := "object " + name
		if raw, ok := def.Properties["type"]; ok {
			prefix = wire + " " + name
			if string(compact(raw)) != fmt.Sprintf(`{"const":%q}`, name) || !slices.Contains(def.Required, "type") {
				return nil, fmt.Errorf("the type of message %s must be a required constant with its name, but it is %s", name, raw)
			}
		} else if def.Type == "object" {
			f[prefix] = true
		}
		if def.Repeatable != "" {
			f[requestFact(wire, name, def.Reply, def.Repeatable, def.ForShareLinks)] = true
		}
		for _, v := range def.Enum {
			f[name+" "+v] = true
		}
		for field, raw := range def.Properties {
			if field == "type" {
				continue
			}
			typ, err := schemaType(raw)
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", name, field, err)
			}
			f[fieldFact(prefix, field, typ, slices.Contains(def.Required, field))] = true
		}
		for _, r := range def.Required {
			if _, ok := def.Properties[r]; !ok {
				return nil, fmt.Errorf("%s requires the field %s, but does not describe it", name, r)
			}
		}
	}
	return f, nil
}

// schemaType returns the Field.Type of a schema, as the reverse of typeSchema.
func schemaType(raw json.RawMessage) (string, error) {
	var members map[string]any
	if err := json.Unmarshal(raw, &members); err != nil {
		return "", err
	}
	delete(members, "description")
	delete(members, "examples")
	for word, s := range scalars {
		if reflect.DeepEqual(members, s.members()) {
			return word, nil
		}
	}
	var n schemaNode
	if err := json.Unmarshal(raw, &n); err != nil {
		return "", err
	}
	switch {
	case len(n.AnyOf) == 2 && string(compact(n.AnyOf[1])) == `{"type":"null"}`:
		inner, err := schemaType(n.AnyOf[0])
		return inner + "?", err
	case n.Type == "array":
		item, err := schemaType(n.Items)
		return item + "[]", err
	case n.Ref != "":
		return strings.TrimPrefix(n.Ref, refPrefix), nil
	}
	return "", fmt.Errorf("no Field.Type has the schema %s; add it to scalars", raw)
}

// compact returns raw without white space, or unchanged if it is not JSON.
func compact(raw []byte) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return raw
	}
	return b.Bytes()
}
