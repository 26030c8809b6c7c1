package drift

import (
	"bytes"
	"fmt"
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

// typeScript has the types of TypeScript.
var typeScript = dialect{
	scalars: map[string]string{
		"string": "string", "boolean": "boolean", "integer": "number", "number": "number", "object": "Record<string, string>",
	},
	orNull: " | null",
	array:  func(item string) string { return item + "[]" },
	word:   func(values []string) string { return "Word<'" + strings.Join(values, "' | '") + "'>" },
	value:  func(constant string) string { return "'" + constant + "'" },
}

// TypeScript returns TypeScript declarations of the messages and other types in the schema of the
// named wire, and a table that tells which requests may be repeated. Requests and the objects in
// them have no null, because a client leaves a field out instead.
func TypeScript(wire string, schema []byte) ([]byte, error) {
	all, err := parseDefinitions(typeScript, schema)
	if err != nil {
		return nil, err
	}
	var out, table bytes.Buffer
	fmt.Fprintf(&out, typeScriptHead, wire)
	for _, d := range all {
		out.WriteByte('\n')
		comment(&out, "", d.Description)
		if len(d.Enum) > 0 {
			fmt.Fprintf(&out, "export type %s = %s;\n", d.name, typeScript.word(d.Enum))
			continue
		}
		fmt.Fprintf(&out, "export interface %s {\n", d.typeName())
		for _, f := range d.fields {
			optional := "?"
			if f.required {
				optional = ""
			}
			comment(&out, "  ", f.description)
			fmt.Fprintf(&out, "  %s%s: %s;\n", propertyName(f.name), optional, f.typ)
		}
		out.WriteString("}\n")
		if d.Repeatable != "" {
			fmt.Fprintf(&table, "  %s: '%s',\n", propertyName(d.name), d.Repeatable)
		}
	}
	out.WriteByte('\n')
	comment(&out, "", repeatableTable)
	fmt.Fprintf(&out, "export const REPEATABLE: Readonly<Record<string, string>> = {\n%s};\n", table.Bytes())
	return out.Bytes(), nil
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
	if len(indent)+len(text)+7 <= generatedWidth {
		fmt.Fprintf(out, "%s/** %s */\n", indent, text)
		return
	}
	fmt.Fprintf(out, "%s/**\n", indent)
	for _, line := range wrapped(text, generatedWidth-len(indent)-len(" * ")) {
		fmt.Fprintf(out, "%s * %s\n", indent, line)
	}
	fmt.Fprintf(out, "%s */\n", indent)
}
