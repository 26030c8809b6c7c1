// Package protocol holds the words that every wire of Holdfast agrees on:
// versions, capabilities, errors, and what a session is.
//
// There are two wires. The link runs between a proxy and the supervisor
// (package protocol/link), the api between a client and a proxy (package
// protocol/api). Both carry the frames of package protocol/frame. SPEC.md
// describes them in prose, for writing a client in another language.
//
// The rules for changing them: unknown fields, kinds and events are ignored,
// so messages may grow but never shrink; a number, a code or a message type is
// never used for a second meaning; a change of meaning raises Version, an
// addition that a peer has to know about gets a Capability; code, schema.json
// and SPEC.md change together, and a test compares them.
//
// Not here: anything that runs. No goroutine, no file, no socket, and nothing
// outside the standard library.
package protocol
