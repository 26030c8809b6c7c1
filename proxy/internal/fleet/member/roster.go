package member

import (
	"encoding/json"

	"holdfast/protocol"
	"holdfast/proxy/internal/fleet/record"
)

// A roster is the state of all sessions that this host has published, and the stamp of its last message.
type roster struct {
	stamp    record.Stamp
	sessions map[protocol.SessionID]json.RawMessage
	sum      record.Sum
}

func newRoster(epoch uint64) *roster {
	return &roster{stamp: record.Stamp{Epoch: epoch}, sessions: map[protocol.SessionID]json.RawMessage{}}
}

func (r *roster) next() record.Stamp {
	r.stamp.Seq++
	return r.stamp
}

// begin begins an epoch, unless it has begun.
func (r *roster) begin(epoch uint64) {
	if r.stamp.Epoch != epoch {
		r.stamp = record.Stamp{Epoch: epoch}
	}
}

// update makes list the sessions of this host, and returns the changes.
func (r *roster) update(list []protocol.SessionInfo) (changes []record.Change) {
	isThere := make(map[protocol.SessionID]bool, len(list))
	for _, s := range list[:min(len(list), record.MaxSessions)] {
		isThere[s.ID] = true
		changes = append(changes, r.set(s)...)
	}
	for id := range r.sessions {
		if !isThere[id] {
			changes = append(changes, r.put(id, nil))
		}
	}
	return changes
}

// set takes the state of one session, and returns the change if there is one.
func (r *roster) set(s protocol.SessionInfo) []record.Change {
	raw := record.Of(s)
	if string(raw) == string(r.sessions[s.ID]) {
		return nil
	}
	return []record.Change{r.put(s.ID, raw)}
}

func (r *roster) put(id protocol.SessionID, raw json.RawMessage) record.Change {
	if old := r.sessions[id]; old != nil {
		r.sum.Toggle(record.SumOf(old))
		delete(r.sessions, id)
	}
	if raw != nil {
		r.sum.Toggle(record.SumOf(raw))
		r.sessions[id] = raw
	}
	return record.Change{Stamp: r.next(), ID: id, Session: raw}
}

// pieces returns the whole roster.
func (r *roster) pieces() []record.Piece {
	parts, size := [][]json.RawMessage{nil}, 0
	for _, raw := range r.sessions {
		if size += len(raw) + 1; size > record.MaxPiece {
			parts, size = append(parts, nil), len(raw)+1
		}
		last := &parts[len(parts)-1]
		*last = append(*last, raw)
	}
	all := make([]record.Piece, len(parts))
	for i, part := range parts {
		all[i] = record.Piece{Stamp: r.next(), Index: i, Total: len(parts), Sessions: part}
	}
	return all
}
