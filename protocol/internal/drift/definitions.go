package drift

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// repeatableTable describes the table REPEATABLE.
const repeatableTable = `REPEATABLE tells for each request whether it may be made again if its reply was lost. "never": it must not be. ` +
	`"read", "set": it may be, because it changes nothing, or sets a state that a second one sets again. ` +
	`Any other value names a field of the request: if that is set, the second request has no second effect.`

// generatedWidth is the greatest width of a comment in generated code.
const generatedWidth = 120

// A dialect has the types of the language of generated code.
type dialect struct {
	scalars map[string]string // by the type in the schema
	orNull  string            // follows a type that has null as well
	array   func(item string) string
	word    func(values []string) string // of a string with known values, to which a newer peer may add others
	value   func(constant string) string
}

// A generatedType is a definition of the schema with its fields in their order.
type generatedType struct {
	schemaNode
	name   string
	fields []field
}

// A field is a field of a definition with its type in the language of the code.
type field struct {
	name, typ, description string
	required               bool
}

// parseDefinitions returns the definitions of a schema. Requests and the objects in them have no null.
func parseDefinitions(lang dialect, schema []byte) ([]generatedType, error) {
	var doc struct {
		Defs json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(schema, &doc); err != nil {
		return nil, err
	}
	members, err := orderedMembers(doc.Defs)
	if err != nil {
		return nil, err
	}
	var nodes map[string]schemaNode
	if err := json.Unmarshal(doc.Defs, &nodes); err != nil {
		return nil, err
	}
	inRequests := map[string]bool{}
	for name, n := range nodes {
		if n.Repeatable != "" {
			addReferences(inRequests, name, nodes)
		}
	}
	var all []generatedType
	for _, m := range members {
		d := generatedType{schemaNode: nodes[m.name], name: m.name}
		if len(d.Enum) == 0 {
			if d.fields, err = parseFields(lang, m.raw, !inRequests[m.name]); err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// parseFields returns the fields of one definition. hasNull tells whether null is a value of those
// fields for which the schema permits it.
func parseFields(lang dialect, raw json.RawMessage, hasNull bool) (all []field, err error) {
	var def struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	if err := json.Unmarshal(raw, &def); err != nil {
		return nil, err
	}
	members, err := orderedMembers(def.Properties)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		var n schemaNode
		if err := json.Unmarshal(m.raw, &n); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		typ, err := lang.typeOf(m.raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		if !hasNull {
			typ = strings.TrimSuffix(typ, lang.orNull)
		}
		all = append(all, field{m.name, typ, n.Description, slices.Contains(def.Required, m.name)})
	}
	return all, nil
}

// typeOf returns the type of a field's schema.
func (lang dialect) typeOf(raw json.RawMessage) (string, error) {
	var n schemaNode
	if err := json.Unmarshal(raw, &n); err != nil {
		return "", err
	}
	switch {
	case len(n.AnyOf) == 2 && string(compact(n.AnyOf[1])) == `{"type":"null"}`:
		inner, err := lang.typeOf(n.AnyOf[0])
		return inner + lang.orNull, err
	case n.Ref != "":
		return strings.TrimPrefix(n.Ref, refPrefix), nil
	case n.Const != "":
		return lang.value(n.Const), nil
	case len(n.Examples) > 0:
		return lang.word(n.Examples), nil
	case n.Type == "array":
		item, err := lang.typeOf(n.Items)
		return lang.array(item), err
	}
	typ, ok := lang.scalars[n.Type]
	if !ok {
		return "", fmt.Errorf("no type is known for the schema %s", raw)
	}
	return typ, nil
}

// typeName returns the name of the type of a message or an object.
func (d generatedType) typeName() string {
	if _, isMessage := d.Properties["type"]; !isMessage {
		return d.name
	}
	return camelCase(d.name) + "Message"
}

// camelCase returns the name of a message as a part of the name of a type.
func camelCase(name string) string {
	var out strings.Builder
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == '.' }) {
		out.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return out.String()
}

// reference matches a reference in a schema.
var reference = regexp.MustCompile(`"\$ref": *"` + regexp.QuoteMeta(refPrefix) + `([^"]+)"`)

// addReferences adds a definition and all definitions that it refers to.
func addReferences(all map[string]bool, name string, nodes map[string]schemaNode) {
	if all[name] {
		return
	}
	all[name] = true
	for _, field := range nodes[name].Properties {
		for _, ref := range reference.FindAllSubmatch(field, -1) {
			addReferences(all, string(ref[1]), nodes)
		}
	}
}

// wrapped splits text into lines of at most width bytes.
func wrapped(text string, width int) (lines []string) {
	for _, word := range strings.Fields(text) {
		last := len(lines) - 1
		if last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// A namedSchema is one member of an object in a schema.
type namedSchema struct {
	name string
	raw  json.RawMessage
}

// orderedMembers returns the members of a JSON object in their order.
func orderedMembers(raw json.RawMessage) (all []namedSchema, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := namedSchema{name: fmt.Sprint(name)}
		if err := dec.Decode(&m.raw); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}
