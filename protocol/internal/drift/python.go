package drift

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// pythonHead begins the file that Python returns.
const pythonHead = `# Code generated from protocol/%[1]s/schema.json; DO NOT EDIT. To update it, run:
#
#	go test ./protocol/%[1]s -update
"""The messages and other types of the wire, as the types of dictionaries.

Each class whose name ends with Message has the fields of one message. A class whose name ends with Spec has
those fields of a request that a caller may set. A type with listed values is open, because a newer peer may
add others.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, Mapping, TypedDict, Union

if sys.version_info >= (3, 11):
    from typing import NotRequired
elif TYPE_CHECKING:
    from typing_extensions import NotRequired
`

// python has the types of Python.
var python = dialect{
	scalars: map[string]string{
		"string": "str", "boolean": "bool", "integer": "int", "number": "float", "object": "dict[str, str]",
	},
	orNull: " | None",
	array:  func(item string) string { return "list[" + item + "]" },
	word:   func(values []string) string { return `Union[Literal["` + strings.Join(values, `", "`) + `"], str]` },
	value:  func(constant string) string { return `Literal["` + constant + `"]` },
}

// pythonKeywords cannot be names of attributes in a class.
var pythonKeywords = strings.Fields("and as assert async await break class continue def del elif else except finally for from global if import in is " +
	"lambda nonlocal not or pass raise return try while with yield")

// pythonOwn are the fields of a request that a client sets itself, or passes as arguments of their own.
var pythonOwn = []string{"type", "request_id", "attachment", "session_id"}

// Python returns Python declarations of the messages and other types in the schema of the named
// wire, and a table that tells which requests may be repeated. Requests and the objects in them have
// no None, because a client leaves a field out instead.
func Python(wire string, schema []byte) ([]byte, error) {
	all, err := parseDefinitions(python, schema)
	if err != nil {
		return nil, err
	}
	var out, table bytes.Buffer
	fmt.Fprintf(&out, pythonHead, wire)
	for _, d := range all {
		if len(d.Enum) > 0 {
			out.WriteByte('\n')
			pythonComment(&out, "", d.Description)
			fmt.Fprintf(&out, "%s = %s\n", d.name, python.word(d.Enum))
			continue
		}
		if d.Repeatable == "" {
			declareDict(&out, d.typeName(), "TypedDict", d.Description, d.fields)
			continue
		}
		fmt.Fprintf(&table, "    \"%s\": \"%s\",\n", d.name, d.Repeatable)
		own, spec := []field(nil), []field(nil)
		for _, f := range d.fields {
			// A client may leave the choice of the session to the proxy.
			if slices.Contains(pythonOwn, f.name) && (f.required || f.name != "session_id") {
				own = append(own, f)
			} else {
				spec = append(spec, f)
			}
		}
		base := "TypedDict"
		if len(spec) > 0 {
			base = camelCase(d.name) + "Spec"
			declareDict(&out, base, "TypedDict", "The fields of "+d.typeName()+" that a caller may set.", spec)
		}
		declareDict(&out, d.typeName(), base, d.Description, own)
	}
	out.WriteString("\n\n")
	pythonComment(&out, "", repeatableTable)
	fmt.Fprintf(&out, "REPEATABLE: Mapping[str, str] = {\n%s}\n", table.Bytes())
	return out.Bytes(), nil
}

// declareDict writes the declaration of a type of dictionaries.
func declareDict(out *bytes.Buffer, name, base, description string, fields []field) {
	out.WriteString("\n\n")
	isClass := !slices.ContainsFunc(fields, func(f field) bool { return slices.Contains(pythonKeywords, f.name) })
	if isClass {
		fmt.Fprintf(out, "class %s(%s):\n", name, base)
		if lines := wrapped(strings.ReplaceAll(description, `\`, `\\`), generatedWidth-len(`    """"""`)); len(lines) == 1 {
			fmt.Fprintf(out, "    \"\"\"%s\"\"\"\n\n", lines[0])
		} else if len(lines) > 1 {
			fmt.Fprintf(out, "    \"\"\"%s\n    \"\"\"\n\n", strings.Join(lines, "\n    "))
		}
	} else {
		pythonComment(out, "", description)
		fmt.Fprintf(out, "%s = %s(\n    \"%s\",\n    {\n", name, base, name)
	}
	for _, f := range fields {
		typ := f.typ
		if !f.required {
			typ = "NotRequired[" + typ + "]"
		}
		if isClass {
			pythonComment(out, "    ", f.description)
			fmt.Fprintf(out, "    %s: %s\n", f.name, typ)
		} else {
			pythonComment(out, "        ", f.description)
			fmt.Fprintf(out, "        \"%s\": '%s',\n", f.name, typ)
		}
	}
	if !isClass {
		out.WriteString("    },\n)\n")
	}
}

// pythonComment writes text as a comment, unless it is empty.
func pythonComment(out *bytes.Buffer, indent, text string) {
	for _, line := range wrapped(text, generatedWidth-len(indent)-len("# ")) {
		fmt.Fprintf(out, "%s# %s\n", indent, line)
	}
}
