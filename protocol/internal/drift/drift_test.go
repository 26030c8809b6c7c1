package drift_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/protocol/gate"
	"holdfast/protocol/internal/drift"
	"holdfast/protocol/link"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func constants(t *testing.T, dir string) []drift.Const {
	t.Helper()
	all, err := drift.Constants(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// codeFacts returns the facts in the code: all of them, and those that a schema can contain.
func codeFacts(t *testing.T) (all, inSchema drift.Facts) {
	t.Helper()
	messages := drift.Facts{}.Add(drift.Describe("link", link.Messages).Facts(), drift.Describe("api", api.Messages).Facts())
	words := constants(t, "../..")
	closed := slices.DeleteFunc(slices.Clone(words), func(c drift.Const) bool { return !slices.Contains(drift.Closed, c.Type) })
	inSchema = drift.Facts{}.Add(messages, drift.ConstFacts(closed, ""))
	messages.Add(drift.Describe("gate", gate.Messages).Facts()) // gate has no schema
	all = drift.Facts{}.Add(messages, drift.ConstFacts(words, ""), drift.ConstFacts(constants(t, "../../frame"), "frame."))
	return all, inSchema
}

func schemaFacts(t *testing.T, linkSchema, apiSchema string) (drift.Facts, error) {
	t.Helper()
	l, err := drift.SchemaFacts("link", []byte(linkSchema))
	if err != nil {
		return nil, err
	}
	a, err := drift.SchemaFacts("api", []byte(apiSchema))
	if err != nil {
		return nil, err
	}
	return drift.Facts{}.Add(l, a), nil
}

// Code, schema and spec must agree about both wires: each message, field, type, code, kind, word and limit.
// None may contain a fact that the code does not have.
//
// demand: B2
func TestCodeSchemaSpec(t *testing.T) {
	code, inSchema := codeFacts(t)
	schema, err := schemaFacts(t, read(t, "../../link/schema.json"), read(t, "../../api/schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range drift.Diff(schema, inSchema) {
		t.Errorf("schema against code: %s", d)
	}
	spec, err := drift.SpecFacts(read(t, "../../SPEC.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range drift.Diff(spec, code) {
		t.Errorf("spec against code: %s", d)
	}
	for _, fact := range []string{"api message pty_exited", "api pty_exited.exit_code: int, required", "Code exited_early", "Kind 1 output"} {
		if !schema[fact] && !strings.HasPrefix(fact, "Kind") || !spec[fact] {
			t.Errorf("the schema or the spec lacks %q", fact)
		}
	}
	if !slices.Contains(api.Messages.Types(), "pty_exited") {
		t.Error("Types does not contain pty_exited")
	}
}

// Diff must find each kind of drift and name it. Otherwise TestCodeSchemaSpec would prove nothing.
//
// demand: B2
func TestDriftIsSeen(t *testing.T) {
	code, inSchema := codeFacts(t)
	spec := read(t, "../../SPEC.md")
	linkSchema, apiSchema := read(t, "../../link/schema.json"), read(t, "../../api/schema.json")
	tests := []struct {
		name, old, new string
		want           []string
	}{
		{name: "field renamed", old: "| `stolen_by` | string | yes |", new: "| `thief` | string | yes |",
			want: []string{"+ api stolen.thief: string, required", "- api stolen.stolen_by: string, required"}},
		{name: "field of another type", old: "| `exit_code` | int | yes |", new: "| `exit_code` | string | yes |",
			want: []string{"+ object ExitRecord.exit_code: string, required", "- object ExitRecord.exit_code: int, required"}},
		{name: "field not required any more", old: "| `argv` | string[] | yes |", new: "| `argv` | string[] | no |",
			want: []string{"+ object SessionInfo.argv: string[], optional", "- object SessionInfo.argv: string[], required"}},
		{name: "field that does not exist", old: "| `ticket` | string | yes |", new: "| `colour` | string | no | x |\n| `ticket` | string | yes |",
			want: []string{"+ api ticket_issued.colour: string, optional"}},
		{name: "message that does not exist", old: "### `goaway`", new: "### `come_back`\n\n### `goaway`",
			want: []string{"+ api message come_back"}},
		{name: "message without a heading", old: "### `goaway`\n", new: "\n",
			want: []string{"+ api ok.reason: string, required", "+ api ok.retry_after_ms: int, required",
				"- api goaway.reason: string, required", "- api goaway.retry_after_ms: int, required", "- api message goaway"}},
		{name: "code that does not exist", old: "| `timeout` |", new: "| `time_out` |",
			want: []string{"+ Code time_out", "- Code timeout"}},
		{name: "kind of another number", old: "| 3 | snapshot |", new: "| 4 | snapshot |",
			want: []string{"+ Kind 4 snapshot", "- Kind 3 snapshot"}},
		{name: "word that does not exist", old: "| `hard` |", new: "| `harder` |",
			want: []string{"+ Outcome harder", "- Outcome hard"}},
		{name: "label that does not exist", old: "| `task_id` | the task that", new: "| `task` | the task that",
			want: []string{"+ label task", "- label task_id"}},
		{name: "request of another answer", old: "| `rename` | `session` | set | no |", new: "| `rename` | `ok` | set | no |",
			want: []string{`+ api request rename: reply "ok", repeatable set, for share links false`, `- api request rename: reply "session", repeatable set, for share links false`}},
		{name: "request that may be repeated", old: "| `signal` | `ok` | never |\n", new: "| `signal` | `ok` | set |\n",
			want: []string{`+ link request signal: reply "ok", repeatable set, for share links false`, `- link request signal: reply "ok", repeatable never, for share links false`}},
		{name: "limit of another value", old: "| `MaxCols` | 2000 |", new: "| `MaxCols` | 200 |",
			want: []string{"+ limit MaxCols 200", "- limit MaxCols 2000"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			facts, err := drift.SpecFacts(strings.Replace(spec, tt.old, tt.new, 1))
			if got := drift.Diff(facts, code); err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %q and %v, want %q", got, err, tt.want)
			}
		})
	}
	if _, err := drift.SpecFacts(spec + "\n| code | meaning |\n| --- | --- |\n| `timeout` | again |\n"); err == nil {
		t.Error("a code that is listed twice is not reported")
	}
	schemas := []struct {
		name, old, new string
		want           []string
	}{
		{name: "not in the union", old: "    {\n      \"$ref\": \"#/$defs/pty_exited\"\n    },\n", want: []string{"- api message pty_exited"}},
		{name: "field renamed", old: `"stolen_by": {`, new: `"thief": {`, want: nil},
		{name: "type of another name", old: `"const": "pty_exited"`, new: `"const": "pty_exit"`, want: nil},
		{name: "request that share links permit", old: "      \"repeatable\": \"read\",\n      \"for_share_links\": true\n    },\n    \"search_content\"", new: "      \"repeatable\": \"read\"\n    },\n    \"search_content\"",
			want: []string{`+ api request search: reply "search_content", repeatable read, for share links false`, `- api request search: reply "search_content", repeatable read, for share links true`}},
		{name: "code left out", old: "        \"timeout\",\n", want: []string{"- Code timeout"}},
	}
	for _, tt := range schemas {
		t.Run("schema: "+tt.name, func(t *testing.T) {
			if !strings.Contains(apiSchema, tt.old) {
				t.Fatalf("%q is not in the schema", tt.old)
			}
			// Both schemas contain the codes.
			facts, err := schemaFacts(t, strings.Replace(linkSchema, tt.old, tt.new, 1), strings.Replace(apiSchema, tt.old, tt.new, 1))
			if tt.want == nil {
				if err == nil {
					t.Error("got no error")
				}
				return
			}
			if got := drift.Diff(facts, inSchema); err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %q and %v, want %q", got, err, tt.want)
			}
		})
	}
}

// Each example in the spec must be a valid message or frame, to the last field and byte.
func TestSpecExamples(t *testing.T) {
	spec := read(t, "../../SPEC.md")
	for info, reg := range map[string]*protocol.Registry{"json api": api.Messages, "json link": link.Messages} {
		for _, text := range drift.Blocks(spec, info) {
			m, _, err := reg.Decode([]byte(text))
			if err != nil {
				t.Errorf("%v: %s", err, text)
				continue
			}
			b, err := protocol.Encode(m)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := anyJSON(t, []byte(text)), anyJSON(t, b); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
	}
	frames := map[string][]byte{
		"hex output":  frame.AppendData(nil, frame.Output, 7, 258, []byte("hi\r\n")),
		"hex control": frame.Append(nil, frame.Control, []byte(`{"type":"ok","request_id":"r-1"}`)),
	}
	for info, want := range frames {
		blocks := drift.Blocks(spec, info)
		if len(blocks) != 1 {
			t.Fatalf("the spec has %d blocks of %s, want 1", len(blocks), info)
		}
		got, err := hex.DecodeString(strings.Join(strings.Fields(blocks[0]), ""))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got % x and %v, want % x", info, got, err, want)
		}
	}
}

func anyJSON(t *testing.T, b []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Each word in code format must exist: a message, a field, a word, or one of a few names that are defined
// elsewhere.
func TestSpecWords(t *testing.T) {
	code, _ := codeFacts(t)
	known := map[string]bool{}
	for fact := range code {
		for _, w := range strings.FieldsFunc(fact, func(r rune) bool { return strings.ContainsRune(" :,", r) }) {
			known[w] = true
			if _, field, ok := strings.Cut(w, "."); ok {
				known[field] = true
			}
			if i := strings.LastIndexByte(w, '.'); i >= 0 {
				known[w[i+1:]] = true
			}
		}
	}
	for _, w := range []string{
		"supervisor.sock", "proxy.sock", "proxy.web.sock", "holdfast", api.Subprotocol, "hi", "type", "T",
		"a-z", "A-Z", "0-9", "_", "-", "TERM", "SIGUSR1", "USR1", "SIGTERM",
	} {
		known[w] = true
	}
	for _, r := range gate.Refusals() {
		known[string(r)] = true
	}
	for _, action := range gate.UpgradeActions() {
		known[string(action)] = true
	}
	for _, state := range []gate.UpgradeState{gate.UpgradeReady, gate.UpgradeCurrent, gate.UpgradeIdle, gate.UpgradeDone, gate.UpgradeReturned, gate.UpgradeFailed} {
		known[string(state)] = true
	}
	known[string(gate.StateUnknown)], known[gate.Subprotocol] = true, true
	word := regexp.MustCompile(`^[\w.-]+$`)
	for _, w := range drift.CodeSpans(read(t, "../../SPEC.md")) {
		if word.MatchString(w) && !known[w] {
			t.Errorf("SPEC.md contains %q in code format, which does not exist", w)
		}
	}
}

// Each code must say whether the request may be retried, and whether it ends an attachment. The codes that
// end no attachment must be those in the comment of api.Error.
func TestSpecErrors(t *testing.T) {
	var staying []string
	for _, row := range drift.Rows(read(t, "../../SPEC.md"), "code") {
		code, meaning, retryable, ends := row[0], row[1], row[2], row[3]
		if meaning == "" || !slices.Contains([]string{"yes", "no", "maybe"}, retryable) || !slices.Contains([]string{"yes", "no"}, ends) {
			t.Errorf("%q is not a complete row", row)
		}
		if ends == "no" {
			staying = append(staying, code)
		}
	}
	if want := []string{"input_full", "input_gap", "line_too_long", "permission_denied"}; !slices.Equal(staying, want) {
		t.Errorf("got %q, want %q", staying, want)
	}
}

// TestTypeScriptOfSchema checks the declaration for each form that a schema may have, and the error for any
// other form.
func TestTypeScriptOfSchema(t *testing.T) {
	const field = `{"$defs": {"a.b": {"properties": {"type": {"const": "a.b"}, "f": %s}, "required": ["type"]}, "c": {"properties": {"type": {"const": "c"}, "t": {"$ref": "#/$defs/T"}}, "repeatable": "f"}, "T": {"properties": {"n": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}}`
	for schema, want := range map[string]string{
		`{"type": "integer", "minimum": 0}`:                            "f?: number;",
		`{"type": "boolean"}`:                                          "f?: boolean;",
		`{"type": "string", "format": "date-time"}`:                    "f?: string;",
		`{"type": "object", "additionalProperties": {}}`:               "f?: Record<string, string>;",
		`{"type": "array", "items": {"$ref": "#/$defs/T"}}`:            "f?: T[];",
		`{"anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]}`:         "f?: T | null;",
		`{"type": "string", "examples": ["x", "y"]}`:                   "f?: Word<'x' | 'y'>;",
		`{"type": "string", "description": "ends */ here"}`:            "/** ends * / here */\n  f?: string;",
		`{"anyOf": [{"type": "string"}, {"type": "integer"}]}`:         "",
		`{"type": "array", "items": {"type": "array", "items": true}}`: "",
	} {
		got, err := drift.TypeScript("api", fmt.Appendf(nil, field, schema))
		body := "export interface ABMessage {\n  type: 'a.b';\n  " + want + "\n}\n"
		if want == "" && err == nil || want != "" && (err != nil || !strings.Contains(string(got), body)) {
			t.Errorf("%s: got %v and\n%s", schema, err, got)
		}
		if err == nil && (!strings.Contains(string(got), "export interface T {\n  n?: string;\n}\n") || !strings.HasSuffix(string(got), "= {\n  c: 'f',\n};\n")) {
			t.Errorf("%s: the object of a request, or the table, has another text:\n%s", schema, got)
		}
	}
}

// TestPythonOfSchema demands the same of Python.
func TestPythonOfSchema(t *testing.T) {
	const defs = `{"$defs": {"a.b": {"description": "A\\B", "properties": {"type": {"const": "a.b"}, "f": %s}, "required": ["type"]}, "c_d": {"properties": {"type": {"const": "c_d"}, "session_id": {"type": "string"}, "from": {"$ref": "#/$defs/T"}}, "required": ["type", "session_id"], "repeatable": "from"}, "T": {"properties": {"n": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, "W": {"enum": ["x", "y"]}}}`
	for schema, want := range map[string]string{
		`{"type": "number"}`:                                   "f: NotRequired[float]",
		`{"type": "object", "additionalProperties": {}}`:       "f: NotRequired[dict[str, str]]",
		`{"type": "array", "items": {"$ref": "#/$defs/T"}}`:    "f: NotRequired[list[T]]",
		`{"anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]}`: "f: NotRequired[T | None]",
		`{"type": "string", "examples": ["x", "y"]}`:           `f: NotRequired[Union[Literal["x", "y"], str]]`,
		`{"type": "boolean", "description": "why"}`:            "# why\n    f: NotRequired[bool]",
		`{"anyOf": [{"type": "string"}, {"type": "integer"}]}`: "",
	} {
		got, err := drift.Python("api", fmt.Appendf(nil, defs, schema))
		if want == "" {
			if err == nil {
				t.Errorf("%s has a type:\n%s", schema, got)
			}
			continue
		}
		for _, part := range []string{
			"class ABMessage(TypedDict):\n    \"\"\"A\\\\B\"\"\"\n\n    type: Literal[\"a.b\"]\n    " + want + "\n",
			"CDSpec = TypedDict(\n    \"CDSpec\",\n    {\n        \"from\": 'NotRequired[T]',\n    },\n)\n",
			"class CDMessage(CDSpec):\n    type: Literal[\"c_d\"]\n    session_id: str\n",
			"class T(TypedDict):\n    n: NotRequired[str]\n", "\nW = Union[Literal[\"x\", \"y\"], str]\n", "= {\n    \"c_d\": \"from\",\n}\n",
		} {
			if err != nil || !strings.Contains(string(got), part) {
				t.Errorf("%s: %v; it lacks\n%s\nin\n%s", schema, err, part, got)
			}
		}
	}
}
