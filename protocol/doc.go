// Package protocol defines the terms that both wires of Holdfast share: versions,
// capabilities, errors, and the description of a session.
//
// There are two wires. The link connects a proxy and the supervisor (package protocol/link).
// The api connects a client and a proxy (package protocol/api). Both use the frames of package
// protocol/frame. SPEC.md describes both in prose for authors of clients in other languages.
//
// Changes must follow these rules. A peer must ignore unknown fields, kinds and events, so
// that messages may grow but must never shrink. A number, a code or a message type must never
// get a second meaning. If a meaning changes, Version must be raised. If a peer must know about
// an addition before it is used, the addition needs a Capability. Code, schema.json and SPEC.md
// must change together; a test compares them.
//
// Not here: code that runs. This package has no goroutine, opens no file or socket, and imports
// only the standard library.
package protocol
