package drift

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// scalars gives each word for a type its schema.
var scalars = map[string]string{
	"base64": `{"type":"string","contentEncoding":"base64"}`,
	"bool":   `{"type":"boolean"}`,
	"id":     `{"type":"string","pattern":"^[a-zA-Z0-9_-]{1,64}$"}`,
	"int":    `{"type":"integer"}`,
	"map":    `{"type":"object","additionalProperties":{"type":"string"}}`,
	"number": `{"type":"number"}`,
	"string": `{"type":"string"}`,
	"time":   `{"type":"string","format":"date-time"}`,
	"uint32": `{"type":"integer","minimum":0,"maximum":4294967295}`,
	"uint64": `{"type":"integer","minimum":0}`,
}

const refPrefix = "#/$defs/"

// object is a JSON object that keeps its order.
type object []member

type member struct {
	key   string
	value any
}

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

// Schema writes a wire as JSON Schema: a definition for each message, which
// are of one union, for each part of one, and for each Closed type in use.
// Unknown fields are not forbidden, since peers ignore them.
func Schema(w Wire, consts []Const) ([]byte, error) {
	var union []object
	var defs object
	used := map[string]bool{}
	for _, m := range w.Messages {
		union = append(union, object{{"$ref", refPrefix + m.Name}})
		defs = append(defs, member{m.Name, definition(m, true, used)})
	}
	for _, o := range w.Objects {
		defs = append(defs, member{o.Name, definition(o, false, used)})
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

func definition(o Object, isMessage bool, used map[string]bool) object {
	var properties object
	required := []string{}
	if isMessage {
		properties = object{{"type", object{{"const", o.Name}}}}
		required = []string{"type"}
	}
	for _, f := range o.Fields {
		properties = append(properties, member{f.Name, typeSchema(f.Type)})
		used[strings.TrimRight(f.Type, "[]?")] = true
		if f.Required {
			required = append(required, f.Name)
		}
	}
	return object{{"type", "object"}, {"properties", properties}, {"required", required}}
}

func typeSchema(typ string) any {
	if some, ok := strings.CutSuffix(typ, "?"); ok {
		return object{{"anyOf", []any{typeSchema(some), object{{"type", "null"}}}}}
	}
	if item, ok := strings.CutSuffix(typ, "[]"); ok {
		return object{{"type", "array"}, {"items", typeSchema(item)}}
	}
	if s, ok := scalars[typ]; ok {
		return json.RawMessage(s)
	}
	return object{{"$ref", refPrefix + typ}}
}

// A schemaNode is what Schema makes use of.
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
}

// SchemaFacts reads what a schema says of the named wire.
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
				return nil, fmt.Errorf("%s has another type: %s", name, raw)
			}
		} else if def.Type == "object" {
			f[prefix] = true
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
				return nil, fmt.Errorf("%s requires %s and does not describe it", name, r)
			}
		}
	}
	return f, nil
}

// schemaType is typeSchema backwards.
func schemaType(raw json.RawMessage) (string, error) {
	raw = compact(raw)
	for word, s := range scalars {
		if s == string(raw) {
			return word, nil
		}
	}
	var n schemaNode
	if err := json.Unmarshal(raw, &n); err != nil {
		return "", err
	}
	switch {
	case len(n.AnyOf) == 2 && string(n.AnyOf[1]) == `{"type":"null"}`:
		some, err := schemaType(n.AnyOf[0])
		return some + "?", err
	case n.Type == "array":
		item, err := schemaType(n.Items)
		return item + "[]", err
	case n.Ref != "":
		return strings.TrimPrefix(n.Ref, refPrefix), nil
	}
	return "", fmt.Errorf("no word for %s", raw)
}

func compact(raw []byte) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return raw
	}
	return b.Bytes()
}
