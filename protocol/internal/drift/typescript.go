package drift

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// typeScriptHead begins the file that TypeScript returns. A Word keeps an editor's completion of
// the known values, although any string may be assigned to it.
const typeScriptHead = `// Code generated from protocol/%[1]s/schema.json; DO NOT EDIT. To update it, run:
//
//	go test ./protocol/%[1]s -update
//
// Each interface whose name ends with Message has the fields of one message of the wire. Numbers of
// 64 bits are plain numbers, because the protocol keeps them below 2^53.

/** A Word has one of the values T, or a value that a newer peer has added. */
export type Word<T extends string> = T | (string & Record<never, never>);
`

// typeScriptTable describes the table REPEATABLE.
const typeScriptTable = `REPEATABLE tells for each request whether it may be made again if its reply was lost. "never": it must not be. ` +
	`"read", "set": it may be, because it changes nothing, or sets a state that a second one sets again. ` +
	`Any other value names a field of the request: if that is set, the second request has no second effect.`

// typeScriptWidth is the greatest width of a comment.
const typeScriptWidth = 120

// TypeScript returns TypeScript declarations of the messages and other types in the schema of the
// named wire, and a table that tells which requests may be repeated. Requests and the objects in
// them have no null, because a client leaves a field out instead.
func TypeScript(wire string, schema []byte) ([]byte, error) {
	var doc struct {
		Defs json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(schema, &doc); err != nil {
		return nil, err
	}
	defs, err := orderedMembers(doc.Defs)
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
	var out, table bytes.Buffer
	fmt.Fprintf(&out, typeScriptHead, wire)
	for _, d := range defs {
		n := nodes[d.name]
		out.WriteByte('\n')
		if err := declare(&out, d, n, !inRequests[d.name]); err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		if n.Repeatable != "" {
			fmt.Fprintf(&table, "  %s: '%s',\n", propertyName(d.name), n.Repeatable)
		}
	}
	out.WriteByte('\n')
	comment(&out, "", typeScriptTable)
	fmt.Fprintf(&out, "export const REPEATABLE: Readonly<Record<string, string>> = {\n%s};\n", table.Bytes())
	return out.Bytes(), nil
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

// declare writes the declaration of one definition. hasNull tells whether null is a value of those
// fields for which the schema permits it.
func declare(out *bytes.Buffer, d namedSchema, n schemaNode, hasNull bool) error {
	comment(out, "", n.Description)
	if len(n.Enum) > 0 {
		fmt.Fprintf(out, "export type %s = %s;\n", d.name, wordType(n.Enum))
		return nil
	}
	var def struct {
		Properties json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(d.raw, &def); err != nil {
		return err
	}
	fields, err := orderedMembers(def.Properties)
	if err != nil {
		return err
	}
	name := d.name
	if _, isMessage := n.Properties["type"]; isMessage {
		name = messageName(d.name)
	}
	fmt.Fprintf(out, "export interface %s {\n", name)
	for _, f := range fields {
		var field schemaNode
		if err := json.Unmarshal(f.raw, &field); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		typ, err := typeScriptType(f.raw)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if !hasNull {
			typ = strings.TrimSuffix(typ, orNull)
		}
		optional := "?"
		if slices.Contains(n.Required, f.name) {
			optional = ""
		}
		comment(out, "  ", field.Description)
		fmt.Fprintf(out, "  %s%s: %s;\n", propertyName(f.name), optional, typ)
	}
	out.WriteString("}\n")
	return nil
}

const orNull = " | null"

// typeScriptType returns the type of a field's schema.
func typeScriptType(raw json.RawMessage) (string, error) {
	var n schemaNode
	if err := json.Unmarshal(raw, &n); err != nil {
		return "", err
	}
	switch {
	case len(n.AnyOf) == 2 && string(compact(n.AnyOf[1])) == `{"type":"null"}`:
		inner, err := typeScriptType(n.AnyOf[0])
		return inner + orNull, err
	case n.Ref != "":
		return strings.TrimPrefix(n.Ref, refPrefix), nil
	case n.Const != "":
		return "'" + n.Const + "'", nil
	case len(n.Examples) > 0:
		return wordType(n.Examples), nil
	case n.Type == "array":
		item, err := typeScriptType(n.Items)
		return item + "[]", err
	}
	typ, ok := map[string]string{
		"string": "string", "boolean": "boolean", "integer": "number", "number": "number", "object": "Record<string, string>",
	}[n.Type]
	if !ok {
		return "", fmt.Errorf("no type of TypeScript is known for the schema %s", raw)
	}
	return typ, nil
}

// wordType returns the type of a string with known values.
func wordType(values []string) string {
	return "Word<'" + strings.Join(values, "' | '") + "'>"
}

// messageName returns the name of a message's interface.
func messageName(typ string) string {
	var name strings.Builder
	for _, part := range strings.FieldsFunc(typ, func(r rune) bool { return r == '_' || r == '.' }) {
		name.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return name.String() + "Message"
}

// propertyName returns a name as the key of a property.
func propertyName(name string) string {
	if strings.Contains(name, ".") {
		return "'" + name + "'"
	}
	return name
}

// comment writes text as a doc comment, unless it is empty.
func comment(out *bytes.Buffer, indent, text string) {
	if text == "" {
		return
	}
	text = strings.ReplaceAll(text, "*/", "* /")
	if len(indent)+len(text)+7 <= typeScriptWidth {
		fmt.Fprintf(out, "%s/** %s */\n", indent, text)
		return
	}
	out.WriteString(indent + "/**\n" + indent + " *")
	column := len(indent) + 2
	for _, word := range strings.Fields(text) {
		if column+1+len(word) > typeScriptWidth {
			out.WriteString("\n" + indent + " *")
			column = len(indent) + 2
		}
		out.WriteString(" " + word)
		column += 1 + len(word)
	}
	out.WriteString("\n" + indent + " */\n")
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
