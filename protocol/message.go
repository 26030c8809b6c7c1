package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
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

// Encode writes a message as JSON, its type first.
func Encode(m Message) ([]byte, error) {
	body, err := json.Marshal(m)
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
