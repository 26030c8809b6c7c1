package apiserver

import (
	"encoding/json"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// A connection can be moved to another proxy while its client uses it. The old proxy freezes the
// connection at a frame boundary, and sends its Record and its descriptor to the new proxy.
// Freezing ends all goroutines of the connection but closes nothing. Restoring makes a new conn
// from the Record; the old proxy restores the connection itself if the handoff fails. The client
// only notices a pause.
//
//	freeze: stop reading; finish or record the requests in progress; pause each
//	        attachment after the input and output that precede the pause; record
//	        bytes that were read and not decoded, and bytes that were not written
//	restore: attach each attachment at its recorded position; when the old proxy has
//	        released the connection: write the unwritten bytes, make the recorded
//	        requests, and read

// RecordVersion is the version of a Record. It is raised if a field is added that the reader must
// not ignore. Version 2 has the client's principal, and version 3 the restriction of a share link.
// 0.2.0 reads version 3, but writes the lowest version that can express a record.
const RecordVersion = 3

// A Record is the complete state of a connection.
type Record struct {
	Version     int                `json:"version"`
	From        Origin             `json:"from"`
	At          int64              `json:"at,omitempty"`    // when the client was last read, in microseconds since 1970
	Hello       *api.Hello         `json:"hello,omitempty"` // without token and secret; nil if no hello was received
	Attachments []AttachmentRecord `json:"attachments,omitempty"`
	Events      *EventsRecord      `json:"events,omitempty"`
	Requests    []json.RawMessage  `json:"requests,omitempty"` // to be made again, in their received form
	In          []byte             `json:"in,omitempty"`       // read, and not decoded yet
	Out         []byte             `json:"out,omitempty"`      // must be written before anything else
	// PassKey is the fingerprint of the key of the passes, if the client has shown a pass: the cookie of the page or
	// of a share link. It was added without a new version, because a proxy that ignores it serves the client as
	// each proxy did before, and must still be able to take over from this one.
	PassKey string `json:"pass_key,omitempty"`
}

// AttachmentRecord tells how to make an attachment again.
type AttachmentRecord struct {
	Number uint32              `json:"number"`
	Spec   protocol.AttachSpec `json:"spec"` // Resume is set
	Text   bool                `json:"text,omitempty"`
	Typed  []byte              `json:"typed,omitempty"` // input that was not accepted yet, of a client that uses no offsets
	Size   protocol.Size       `json:"size,omitzero"`   // the size that was sent to the client last
}

// EventsRecord is the position of a subscription.
type EventsRecord struct {
	Instance protocol.Instance `json:"instance"`
	After    uint64            `json:"after"`
}

// fillRecord completes the record. No goroutine of the connection may run any more.
func (c *conn) fillRecord(r *Record, t Movable) {
	r.From.Principal = c.recordedPrincipal()
	if c.from.Cookie {
		r.PassKey = c.s.passes.Fingerprint()
	}
	if c.hello != nil {
		hello := *c.hello
		hello.Token, hello.Secret = "", ""
		r.Hello = &hello
	}
	for _, a := range c.attachments.all() {
		spec := a.link.Resumption()
		if a.frozenAt != nil {
			spec = *a.frozenAt
		}
		spec.Move++ // the next proxy attaches after this one
		rec := AttachmentRecord{Number: a.number, Spec: spec, Text: a.isText, Size: a.sentSize}
		if a.typist != nil {
			rec.Typed = a.typist.Rest()
		}
		r.Attachments = append(r.Attachments, rec)
	}
	r.Events = c.following.record()
	r.In, r.Out = t.Leftover(), t.Unwritten()
}
