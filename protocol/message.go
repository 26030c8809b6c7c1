package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// A Message is a control message. It is encoded as a JSON object, and "type" is its MessageType.
type Message interface{ MessageType() string }

// Request is embedded in each message that has a reply. The reply contains the same id. The
// replying side must not interpret the id.
type Request struct {
	RequestID string `json:"request_id,omitempty"`
}

// ID returns the request's id.
func (r Request) ID() string { return r.RequestID }

// SetID sets the request's id.
func (r *Request) SetID(id string) { r.RequestID = id }

// Envelope contains the fields that every message has, whether its type is known or not.
type Envelope struct {
	Type      string `json:"type"`
	RequestID string `json:"request_id,omitempty"`
}

// A Registry contains the message types and the requests of one wire.
type Registry struct {
	load     sync.Once
	rows     func() []RequestKind
	others   []Message
	types    map[string]reflect.Type
	requests map[string]RequestKind
}

// NewRegistry returns a Registry of the requests that rows returns, of their replies, and of other messages.
// Each message is passed as the zero value of its struct. The first use of the Registry calls rows, so that a
// program that does not use it starts faster. That use panics if two structs have the same type, or if two rows
// have the same request, because that is a mistake in the program.
func NewRegistry(rows func() []RequestKind, others ...Message) *Registry {
	return &Registry{rows: rows, others: others}
}

// loaded returns the Registry with its maps.
func (r *Registry) loaded() *Registry {
	r.load.Do(func() {
		rows := r.rows()
		r.types, r.requests = make(map[string]reflect.Type, 2*len(rows)), make(map[string]RequestKind, len(rows))
		for _, k := range rows {
			if _, ok := r.requests[k.Type()]; ok {
				panic("protocol: two rows of request " + k.Type())
			}
			r.requests[k.Type()] = k
			r.add(k.Message)
			if k.Reply != nil {
				r.add(k.Reply)
			}
		}
		for _, m := range r.others {
			r.add(m)
		}
	})
	return r
}

func (r *Registry) add(m Message) {
	name, t := m.MessageType(), reflect.TypeOf(m)
	if r.types[name] != nil && r.types[name] != t {
		panic("protocol: two messages of type " + name)
	}
	r.types[name] = t
}

// Request returns the row of a request. ok is false if no request has this type.
func (r *Registry) Request(typ string) (k RequestKind, ok bool) {
	k, ok = r.loaded().requests[typ]
	return k, ok
}

// Requests returns the rows of all requests, sorted by type.
func (r *Registry) Requests() []RequestKind {
	return slices.SortedFunc(maps.Values(r.loaded().requests), func(a, b RequestKind) int { return strings.Compare(a.Type(), b.Type()) })
}

// Types returns the names of all message types, sorted.
func (r *Registry) Types() []string {
	var names []string
	for n := range r.loaded().types {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// New returns a pointer to a zero message of the named type, or nil if the type is unknown.
func (r *Registry) New(name string) Message {
	t := r.loaded().types[name]
	if t == nil {
		return nil
	}
	return reflect.New(t).Interface().(Message)
}

// Decode decodes a message and returns a pointer to its struct. The error is bad_frame if data is
// not a message, and unsupported if the type is unknown. The Envelope contains the fields that
// could be decoded, also if Decode fails.
func (r *Registry) Decode(data []byte) (Message, Envelope, error) {
	var env Envelope
	if err := json.Unmarshal(data, &env); err != nil || env.Type == "" {
		return nil, env, Errorf(CodeBadFrame, "not a JSON object with a type")
	}
	m := r.New(env.Type)
	if m == nil {
		return nil, env, Errorf(CodeUnsupported, "unknown message type %.64q", env.Type)
	}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, env, Errorf(CodeBadFrame, "%s: %v", env.Type, err)
	}
	return m, env, nil
}

// Encode returns a message as JSON, with the type as the first field. It encodes a nil list as
// [], never as null.
func Encode(m Message) ([]byte, error) {
	body, err := Marshal(withLists(m))
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

// Marshal encodes v like json.Marshal, but without escapes for HTML. They would replace one byte
// by six, so a message that arrived in one frame could become too large to be forwarded in one.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// withLists returns a copy of m in which each nil list that is not omitted is an empty one,
// because peers may rely on a list.
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

// fillLists replaces the nil lists in v. It copies the structs that v points to before it changes
// them.
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
