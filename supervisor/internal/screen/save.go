package screen

import (
	"encoding/binary"
	"encoding/json"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt"
)

// A record is a saved screen: recordVersion, then sections of a kind (a byte),
// a length (uint64, little endian) and so many bytes. Unknown sections, and
// unknown fields of the rest, are skipped: both may be added by later versions.
const (
	recordVersion = 1

	sectionSnapshot byte = 1 // vt's, of the screen's own size
	sectionRest     byte = 2 // a saved, as JSON

	sectionHead = 1 + 8
)

// saved is what the snapshot does not say.
type saved struct {
	Size          protocol.Size           `json:"size"`
	Offset        uint64                  `json:"offset"`
	Title         string                  `json:"title,omitempty"`
	Cwd           string                  `json:"cwd,omitempty"`
	Bell          bool                    `json:"bell,omitempty"`
	Titled        bool                    `json:"titled,omitempty"`
	Moved         bool                    `json:"moved,omitempty"`
	Notifications []protocol.Notification `json:"notifications,omitempty"`
	Erased        erased                  `json:"erased,omitzero"`
	Rest          *vt.Rest                `json:"rest"`
}

// Save returns a record of the whole state, from which Restore makes the same
// screen in this program or in another one, with as many as history lines above
// it; all of them where history is negative. Events, notifications and replies
// that nobody has taken are in it, and stay here as well.
//
// The record is as long as the text with its looks, and Save holds about twice
// of that at most.
func (s *Screen) Save(history int) []byte {
	if history < 0 {
		history = s.term.HistoryLines()
	}
	record, at := beginSection([]byte{recordVersion}, sectionSnapshot)
	record, rest := s.term.AppendSave(record, history)
	endSection(record, at)
	e := &s.events
	data, err := json.Marshal(saved{
		Size: s.size, Offset: s.offset, Title: e.title, Cwd: e.cwd, Bell: e.bell,
		Titled: e.titled, Moved: e.moved, Notifications: e.notifications,
		Erased: e.erased, Rest: rest,
	})
	if err != nil {
		panic("screen: save: " + err.Error()) // there is nothing in it that JSON has not
	}
	record, at = beginSection(record, sectionRest)
	record = append(record, data...)
	endSection(record, at)
	return record
}

// beginSection returns where the section's bytes begin.
func beginSection(record []byte, kind byte) ([]byte, int) {
	record = append(record, kind, 0, 0, 0, 0, 0, 0, 0, 0)
	return record, len(record)
}

func endSection(record []byte, at int) {
	binary.LittleEndian.PutUint64(record[at-8:], uint64(len(record)-at))
}
