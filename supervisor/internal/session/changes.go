package session

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"

	"holdfast/protocol"
	"holdfast/shared/plain"
	"holdfast/supervisor/internal/screen"
)

// A reader of changes sends the mark of its last reply. The mark is short, because an agent reads
// and repeats it with each request: it consists of changesMarkVersion, the CRC-32 of the instance,
// the fields of a readerMark, and the CRC-32 of the bytes before. The session itself remembers the
// hashes of the lines. If an upgrade or a crash has lost them, the reply has all lines that may have
// changed.

const (
	changesMarkVersion = 2
	checkBytes         = 4 // of a CRC-32
	// maxMarkLine bounds the numbers in a mark, so that no computation with them overflows.
	maxMarkLine = 1 << 52
)

// readerMark is a parsed mark of this instance.
type readerMark struct {
	screen screen.ReaderMark
	count  uint64 // number of the commands that had ended
}

// encode returns the mark for clients.
func (m readerMark) encode(of protocol.Instance) []byte {
	p := binary.LittleEndian.AppendUint32([]byte{changesMarkVersion}, crc32.ChecksumIEEE([]byte(of)))
	p = binary.LittleEndian.AppendUint32(p, m.screen.Epoch)
	alternate := uint64(0)
	if m.screen.Alternate {
		alternate = 1
	}
	for _, v := range []uint64{m.screen.Seq, m.screen.Top, m.screen.Next - m.screen.Top, alternate, m.count} {
		p = binary.AppendUvarint(p, v)
	}
	return binary.LittleEndian.AppendUint32(p, crc32.ChecksumIEEE(p))
}

// parseReaderMark parses a mark of a reply to Changes. It returns nil if p is empty.
//
// Errors: invalid_argument; instance_mismatch if the mark belongs to another instance.
func (i *identity) parseReaderMark(p []byte) (*readerMark, error) {
	if len(p) == 0 {
		return nil, nil
	}
	wrong := protocol.Errorf(protocol.CodeInvalidArgument, "since is not a mark of changes; use the mark of an earlier reply unchanged, or none")
	const head = 1 + checkBytes + checkBytes
	if len(p) < head+checkBytes || len(p) > protocol.MaxMark || p[0] != changesMarkVersion {
		return nil, wrong
	}
	body := p[:len(p)-checkBytes]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(p[len(body):]) {
		return nil, wrong
	}
	var v [5]uint64
	fields := body[head:]
	for n := range v {
		k := 0
		if v[n], k = binary.Uvarint(fields); k <= 0 || v[n] > maxMarkLine {
			return nil, wrong
		}
		fields = fields[k:]
	}
	if len(fields) > 0 || v[3] > 1 {
		return nil, wrong
	}
	if binary.LittleEndian.Uint32(body[1:]) != crc32.ChecksumIEEE([]byte(i.instance)) {
		return nil, protocol.Errorf(protocol.CodeInstanceMismatch, "the mark belongs to an earlier instance of session %s; ask without a mark", i.id)
	}
	m := screen.ReaderMark{Epoch: binary.LittleEndian.Uint32(body[1+checkBytes:]), Seq: v[0], Top: v[1], Next: v[1] + v[2], Alternate: v[3] == 1}
	return &readerMark{m, v[4]}, nil
}

// Changes returns what has changed since a mark, or the whole screen.
//
// Errors: invalid_argument for an invalid mark; instance_mismatch for a mark of another instance;
// those of askScreen.
func (r *reading) Changes(spec protocol.ChangesSpec) (protocol.ChangesContent, error) {
	since, err := r.parseReaderMark(spec.Since)
	if err != nil {
		return protocol.ChangesContent{}, err
	}
	var has *screen.ReaderMark
	if since != nil {
		has = &since.screen
	}
	var changes *screen.Changes
	var count uint64
	var ended []protocol.ChangedCommand
	if err := r.askScreen(func(sc *screen.Screen) error {
		changes = sc.Changes(has, min(cmp.Or(spec.MaxBytes, protocol.DefaultChangesBytes), protocol.MaxScreenBytes))
		count = r.commands.current().Count
		if since != nil {
			ended = r.commands.Log.since(since.count)
		}
		return nil
	}); err != nil {
		return protocol.ChangesContent{}, err
	}
	for i := range ended {
		ended[i].Line = plain.Cut(r.masker.Text(ended[i].Line), awayLine)
	}
	c := changes.Content(ended)
	if c.Whole {
		c.Instance = r.instance
	}
	c.Mark = readerMark{changes.Mark, count}.encode(r.instance)
	return c, nil
}
