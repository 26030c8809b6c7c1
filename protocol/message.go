package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A Message is a control message: a JSON object whose "type" is MessageType.
type Message interface{ MessageType() string }

// Request is embedded in messages that are answered. The answer carries the
// same id; it means nothing to the side that answers.
type Request struct {
	RequestID string `json:"request_id,omitempty"`
}

// ID returns the request's id.
func (r Request) ID() string { return r.RequestID }

// SetID sets the request's id.
func (r *Request) SetID(id string) { r.RequestID = id }

// Envelope is what can be read of any message, known or not.
type Envelope struct {
	Type      string `json:"type"`
	RequestID string `json:"request_id,omitempty"`
}

// A Registry knows the messages of one wire.
type Registry struct {
	types map[string]reflect.Type
}

// NewRegistry returns a Registry of the given messages, each passed as a zero
// value of its struct. Two messages of one type are a programmer's error and
// panic.
func NewRegistry(messages ...Message) *Registry {
	r := &Registry{types: make(map[string]reflect.Type, len(messages))}
	for _, m := range messages {
		name := m.MessageType()
		if r.types[name] != nil {
			panic("protocol: two messages of type " + name)
		}
		r.types[name] = reflect.TypeOf(m)
	}
	return r
}

// Types returns the known message types, sorted.
func (r *Registry) Types() []string {
	var names []string
	for n := range r.types {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// New returns a pointer to a zero message of the type, or nil.
func (r *Registry) New(name string) Message {
	t := r.types[name]
	if t == nil {
		return nil
	}
	return reflect.New(t).Interface().(Message)
}

// Decode reads one message and returns a pointer to its struct. It returns
// bad_frame for what is not a message, and unsupported for a type it does not
// know; the Envelope is filled as far as it could be read.
func (r *Registry) Decode(data []byte) (Message, Envelope, error) {
	var env Envelope
	if err := json.Unmarshal(data, &env); err != nil || env.Type == "" {
		return nil, env, Errorf(CodeBadFrame, "not a JSON object with a type")
	}
	m := r.New(env.Type)
	if m == nil {
		return nil, env, Errorf(CodeUnsupported, fmt.Sprintf("unknown message type %.64q", env.Type))
	}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, env, Errorf(CodeBadFrame, fmt.Sprintf("%s: %v", env.Type, err))
	}
	return m, env, nil
}

// Encode writes a message as JSON, its type first. A list that is nil is
// written as [], never as null.
func Encode(m Message) ([]byte, error) {
	body, err := marshal(withLists(m))
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.MessageType(), err)
	}
	if len(body) < 2 || body[0] != '{' {
		return nil, fmt.Errorf("encode %s: not an object", m.MessageType())
	}
	var out bytes.Buffer
	out.Grow(len(body) + len(m.MessageType()) + 12)
	fmt.Fprintf(&out, `{"type":%q`, m.MessageType())
	if len(body) > 2 {
		out.WriteByte(',')
	}
	out.Write(body[1:])
	return out.Bytes(), nil
}

// marshal is json.Marshal without the escapes that HTML would need: they make
// six bytes of one, and what came in one frame has to go on in one.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// withLists returns m, or a copy of it that has an empty slice in place of
// each nil one that would be sent: a peer is promised a list.
func withLists(m Message) any {
	v := reflect.Indirect(reflect.ValueOf(m))
	if v.Kind() != reflect.Struct {
		return m
	}
	c := reflect.New(v.Type())
	c.Elem().Set(v)
	fillLists(c.Elem())
	return c.Interface()
}

// fillLists changes v, and copies of what v points to.
func fillLists(v reflect.Value) {
	for i := range v.NumField() {
		f, t := v.Field(i), v.Type().Field(i)
		switch {
		case !t.IsExported():
		case f.Kind() == reflect.Struct:
			fillLists(f)
		case f.Kind() == reflect.Pointer && !f.IsNil() && f.Elem().Kind() == reflect.Struct:
			c := reflect.New(f.Type().Elem())
			c.Elem().Set(f.Elem())
			fillLists(c.Elem())
			f.Set(c)
		case f.Kind() == reflect.Slice && f.IsNil() && !strings.Contains(t.Tag.Get("json"), ",omit"):
			f.Set(reflect.MakeSlice(f.Type(), 0, 0))
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			c := reflect.MakeSlice(f.Type(), f.Len(), f.Len())
			reflect.Copy(c, f)
			for j := range c.Len() {
				fillLists(c.Index(j))
			}
			f.Set(c)
		}
	}
}
