package protocol

import "reflect"

// A RequestKind is a row of the table of requests that a wire has. Each message that the asking
// side sends has one row. All layers read their decisions about a request from its row.
type RequestKind struct {
	Message Message // the request, as the zero value of its struct
	Reply   Message // the first reply if the request succeeds; nil if the request has none
	Link    Message // for a row of the api: the request of the link that the proxy makes of it; nil if it makes none

	// Repeat tells whether the request may be made again. A row of the api that has a Link and no
	// Repeat has the Repeat of the link's row.
	Repeat Repeat

	IsAboutSession bool // the field session_id names the session that the request is about
	IsLong         bool // the reply may come at any later time, so nothing may wait for it
	IsForShares    bool // a client with a share link may make the request

	// IsCostly marks a request whose work grows with the stored output, or with a size that the
	// client chooses. If a supervisor dies during the request, it is not made again.
	IsCostly bool
	// IsIdle marks a request that only waits. It is made again even if many supervisors die
	// during it, because none can have died of it.
	IsIdle bool
}

// Type returns the message type of the request.
func (k RequestKind) Type() string { return k.Message.MessageType() }

// Repeat tells whether a request may be made again if its reply was lost. In that case it is not
// known whether the request was carried out.
type Repeat string

// The values of Repeat.
const (
	RepeatNever    Repeat = "never"    // a second request may have a second effect, or affect a later instance
	RepeatRead     Repeat = "read"     // the request changes nothing
	RepeatSet      Repeat = "set"      // the request sets a state, and a second one sets the same state
	RepeatToken    Repeat = "token"    // if token is set, the supervisor answers a second request like the first
	RepeatWriter   Repeat = "writer"   // if writer is set, the supervisor takes no input twice
	RepeatInstance Repeat = "instance" // if instance is set, a second request affects no later instance; it fails if the first was carried out
)

// repeatFields contains the field of a message that must be set for each Repeat with a condition.
var repeatFields = map[Repeat]string{RepeatToken: "Token", RepeatWriter: "Writer", RepeatInstance: "Instance"}

// MayRepeat reports whether m, a request of this kind, may be made again if its reply was lost.
func (k RequestKind) MayRepeat(m Message) bool {
	switch k.Repeat {
	case RepeatRead, RepeatSet:
		return true
	}
	f := field(m, repeatFields[k.Repeat])
	return f.IsValid() && !f.IsZero()
}

// SessionOf returns the session id in m, or "" if m has none.
func SessionOf(m Message) SessionID {
	if f := field(m, "SessionID"); f.IsValid() {
		return SessionID(f.String())
	}
	return ""
}

// InstanceOf returns the instance in m, or "" if m has none.
func InstanceOf(m Message) Instance {
	if f := field(m, "Instance"); f.IsValid() {
		return Instance(f.String())
	}
	return ""
}

// WithInstance returns a copy of m with the given instance. m must have an instance.
func WithInstance(m Message, instance Instance) Message {
	c := copyOf(m)
	c.FieldByName("Instance").SetString(string(instance))
	return c.Interface().(Message)
}

// About returns a copy of m that is about the session id. If messages of this type have an instance, and m has none, the
// copy has the given one. m must have a session id.
func About(m Message, id SessionID, instance Instance) Message {
	c := copyOf(m)
	c.FieldByName("SessionID").SetString(string(id))
	if f := c.FieldByName("Instance"); f.IsValid() && f.IsZero() {
		f.SetString(string(instance))
	}
	return c.Interface().(Message)
}

// copyOf returns a copy of the struct of m. Its fields can be set.
func copyOf(m Message) reflect.Value {
	v := reflect.Indirect(reflect.ValueOf(m))
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}

// field returns the named field of a message, or the zero Value if the message has no such field.
func field(m Message, name string) reflect.Value {
	v := reflect.Indirect(reflect.ValueOf(m))
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}
