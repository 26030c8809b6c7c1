// Package directory is a gate's copy of the records that its hosts publish about themselves and their sessions.
//
// A host is known by its key. Its messages have stamps, and a message with an older stamp than the last
// one is ignored. If a stamp is missing, or if the hash in the host's record differs from the hash of the
// copy, the copy is stale, and the methods report that the gate should ask for all sessions.
//
// A host is connected to the gate of this directory or to another one, over which its messages come. It is
// reachable if its last record came over a connection that has not ended, of a gate that can be reached.
//
// Invariant: the directory never makes a session exited. It shows the state that the host has
// published, or unknown while the host cannot be reached or has no proxy. It holds at most maxBytes of
// each host's sessions.
//
// A client with a principal sees the sessions of its workspace on the hosts that it sees. A host whose label
// workspace_id is set belongs to that workspace, and all other hosts are common to the workspaces. The labels of a host
// are unknown before its first record, so until then lists show it only to clients that see all workspaces.
//
// Not here: the principal of a client (package gate), the bus (package bus), the file with the hosts' keys (package credential), and time, which
// the functions receive as an argument.
package directory

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/record"
)

// maxBytes is how many bytes of sessions the directory holds of one host. It suffices for 4096 sessions
// with the most labels, and for 65,536 ordinary ones.
const maxBytes = 64 << 20

// A Directory may be used by several goroutines.
type Directory struct {
	own    string // address of the gate of this directory
	mu     sync.RWMutex
	gates  map[string]bool // addresses of the gates that can be reached
	byKey  map[string]*host
	byName map[string]*host
	names  []string // sorted
}

// A host is the copy of one host.
type host struct {
	key, name string
	last      record.Stamp // of the last message that was not ignored
	isStale   bool         // sessions may differ from those of the host
	about     record.Host  // the last record; its Sum is empty before the first one
	seenAt    time.Time    // when about arrived
	gate      string       // address of the gate over which about arrived, or "" if that connection has ended
	lost      record.Lost  // the last connection that has ended

	sessions map[protocol.SessionID]entry
	order    []protocol.SessionID // sorted ids of sessions; nil if it must be made again
	sum      record.Sum
	bytes    int

	pieces     []record.Piece // of a roster that has not arrived completely
	pieceBytes int            // of the sessions in pieces
}

type entry struct {
	record.Session
	sum   record.Sum
	bytes int
	told  record.Stamp // of the Change that told the session; zero if a roster has
}

// New returns a Directory without hosts. own is the address of its gate.
func New(own string) *Directory {
	return &Directory{own: own, gates: map[string]bool{own: true}, byKey: map[string]*host{}, byName: map[string]*host{}}
}

// Join adds a host. A host that has joined again keeps its sessions. A host with
// another key and the same name is removed.
func (d *Directory) Join(key, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byKey[key] != nil {
		return
	}
	if before := d.byName[name]; before != nil {
		d.remove(before)
	}
	h := &host{key: key, name: name, isStale: true, sessions: map[protocol.SessionID]entry{}}
	d.byKey[key], d.byName[name] = h, h
	i, _ := slices.BinarySearch(d.names, name)
	d.names = slices.Insert(d.names, i, name)
}

// Remove removes a host with its sessions.
func (d *Directory) Remove(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.byKey[key]; h != nil {
		d.remove(h)
	}
}

func (d *Directory) remove(h *host) {
	delete(d.byKey, h.key)
	delete(d.byName, h.name)
	if i, ok := slices.BinarySearch(d.names, h.name); ok {
		d.names = slices.Delete(d.names, i, i+1)
	}
}

// SetGate tells whether another gate can be reached.
func (d *Directory) SetGate(address string, isReachable bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if isReachable {
		d.gates[address] = true
	} else {
		delete(d.gates, address)
	}
}

// Disconnect tells that the connection of a host to this gate has ended. It returns the message
// about it for other gates.
func (d *Directory) Disconnect(key string) record.Lost {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.byKey[key]
	if h == nil || h.gate != d.own {
		return record.Lost{} // no connection
	}
	m := record.Lost{Epoch: h.about.Epoch, Link: h.about.Link}
	h.lose(d.own, m)
	return m
}

// Lost tells that the connection of a host to a gate has ended.
func (d *Directory) Lost(key, gate string, m record.Lost) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.byKey[key]; h != nil {
		h.lose(gate, m)
	}
}

func (h *host) lose(gate string, m record.Lost) {
	if (record.Host{Stamp: record.Stamp{Epoch: m.Epoch}, Link: m.Link}).IsAfter(h.lost) {
		h.lost = m // a record of this connection that arrives late does not make the host reachable
	}
	if h.gate == gate && !h.about.IsAfter(h.lost) {
		h.gate = ""
	}
}

// Host takes the record of a host, which came over a gate. It reports whether the gate of this directory
// should ask for the roster. A host that has not listed its sessions yet is not asked, and its sessions stay as they
// are, because an agent starts without a list while the sessions live on.
func (d *Directory) Host(key, gate string, m record.Host, now time.Time) (isStale bool) {
	isStale = d.take(key, m.Stamp, func(h *host) {
		h.about, h.seenAt, h.gate = m, now, gate
		if !m.IsAfter(h.lost) {
			h.gate = ""
		}
		if !m.IsUnlisted && (m.Count != len(h.sessions) || m.Sum != h.sum.String()) {
			h.isStale = true
		}
	})
	return isStale && !m.IsUnlisted
}

// Change takes the change of a session. It reports whether the gate should ask for the roster.
func (d *Directory) Change(key string, m record.Change) (isStale bool) {
	return d.take(key, m.Stamp, func(h *host) {
		h.remove(m.ID)
		if m.Session == nil {
			return
		}
		if !h.add(m.Session) {
			h.isStale = true
			return
		}
		e := h.sessions[m.ID]
		e.told = m.Stamp
		h.sessions[m.ID] = e
	})
}

// Piece takes a piece of a roster. It reports whether the gate should ask for the roster.
func (d *Directory) Piece(key string, m record.Piece) (isStale bool) {
	return d.take(key, m.Stamp, func(h *host) {
		if m.Index != len(h.pieces) || len(h.pieces) > 0 && h.pieces[0].Total != m.Total {
			h.dropPieces()
			if m.Index != 0 {
				return
			}
		}
		for _, raw := range m.Sessions {
			h.pieceBytes += len(raw)
		}
		if h.pieceBytes > maxBytes {
			h.dropPieces()
			return
		}
		if h.pieces = append(h.pieces, m); len(h.pieces) == m.Total {
			h.replace()
		}
	})
}

// take calls f for the host unless the message is older than the last one. A message that does not
// follow the last one directly shows that others are missing.
func (d *Directory) take(key string, stamp record.Stamp, f func(*host)) (isStale bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.byKey[key]
	if h == nil || !h.last.Before(stamp) {
		return false
	}
	isNext := h.last.Epoch == stamp.Epoch && h.last.Seq+1 == stamp.Seq
	h.last = stamp
	if !isNext {
		h.dropPieces()
	}
	f(h)
	return h.isStale && len(h.pieces) == 0 // otherwise the roster is arriving
}

// replace makes the sessions of the pieces the only ones.
func (h *host) replace() {
	pieces := h.pieces
	h.dropPieces()
	h.sessions, h.order, h.sum, h.bytes = make(map[protocol.SessionID]entry, len(h.sessions)), nil, record.Sum{}, 0
	h.isStale = false
	for _, p := range pieces {
		for _, raw := range p.Sessions {
			if !h.add(raw) {
				h.isStale = true
			}
		}
	}
}

// dropPieces forgets a roster that has not arrived completely.
func (h *host) dropPieces() { h.pieces, h.pieceBytes, h.isStale = nil, 0, true }

// add adds a session. It returns false if the session is invalid, exists, or does not fit.
func (h *host) add(raw []byte) bool {
	s, err := record.ParseSession(raw)
	if err != nil || len(h.sessions) >= record.MaxSessions || h.bytes+len(raw) > maxBytes {
		return false
	}
	if _, exists := h.sessions[s.ID]; exists {
		return false
	}
	e := entry{Session: s, sum: record.SumOf(raw), bytes: len(raw)}
	h.sessions[s.ID], h.order = e, nil
	h.sum.Toggle(e.sum)
	h.bytes += e.bytes
	return true
}

func (h *host) remove(id protocol.SessionID) {
	if e, ok := h.sessions[id]; ok {
		delete(h.sessions, id)
		h.order = nil
		h.sum.Toggle(e.sum)
		h.bytes -= e.bytes
	}
}

func (d *Directory) isReachable(h *host, now time.Time) bool {
	return d.gates[h.gate] && now.Sub(h.seenAt) < record.Late
}

// Name returns the name of the host with a key, or "".
func (d *Directory) Name(key string) string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if h := d.byKey[key]; h != nil {
		return h.name
	}
	return ""
}

// Epoch returns the epoch of the last message of the host with a key, or 0.
func (d *Directory) Epoch(key string) uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if h := d.byKey[key]; h != nil {
		return h.last.Epoch
	}
	return 0
}

// Resolve returns the key of the host with a name, or "" if there is none, and the address of the gate to
// which the host is connected, or "" if it is not reachable.
func (d *Directory) Resolve(name string, now time.Time) (key, gate string) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	h := d.byName[name]
	if h == nil {
		return "", ""
	}
	if !d.isReachable(h, now) {
		return h.key, ""
	}
	return h.key, h.gate
}

// WasHeard reports whether the last record of the host with a name has come within the last record.Late. The host
// need not be connected any more.
func (d *Directory) WasHeard(name string, now time.Time) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	h := d.byName[name]
	return h != nil && now.Sub(h.seenAt) < record.Late
}

// Gate returns the address of the gate over which the last record of a host came, or "".
func (d *Directory) Gate(key string) string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if h := d.byKey[key]; h != nil {
		return h.gate
	}
	return ""
}

// Keys returns the keys of all hosts.
func (d *Directory) Keys() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Keys(d.byKey))
}

// IsVisible reports whether a client sees the host with a name. No host is hidden from a client without a principal, also if
// the host was removed just now.
func (d *Directory) IsVisible(principal *protocol.Principal, name string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	h := d.byName[name]
	return principal == nil || h != nil && h.isVisible(principal)
}

func (h *host) isVisible(principal *protocol.Principal) bool {
	return principal == nil || h.about.Labels[protocol.LabelWorkspace] == "" || principal.CanSee(h.about.Labels)
}

// isListed reports whether lists show the host to a client.
func (h *host) isListed(principal *protocol.Principal) bool {
	return h.isVisible(principal) && (principal == nil || principal.All || !h.seenAt.IsZero())
}

// Hosts returns the hosts that a client sees and whose names come after a name, at most gate.MaxRows, with
// the numbers of the sessions that it sees. next is the name after which more hosts follow, or "".
func (d *Directory) Hosts(principal *protocol.Principal, after string, now time.Time) (list []gate.HostInfo, next string) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	room := gate.MaxPage
	for _, name := range d.names[d.begin(after):] {
		h := d.byName[name]
		if !h.isListed(principal) {
			continue
		}
		sessions, running := h.count(principal)
		info := gate.HostInfo{
			Name: h.name, IsReachable: d.isReachable(h, now), Release: h.about.Release, System: h.about.System,
			Labels: h.about.Labels, Sessions: sessions, Running: running, CPUs: h.about.CPUs, SeenAt: h.seenAt,
		}
		if info.IsReachable {
			info.IsServing, info.Gate = h.about.IsServing, h.gate
		}
		if room -= 512 + len(info.Name) + len(info.Release) + len(info.System) + size(info.Labels); room < 0 && len(list) > 0 || len(list) == gate.MaxRows {
			return list, list[len(list)-1].Name
		}
		list = append(list, info)
	}
	return list, ""
}

// count returns the numbers of sessions that a client sees, and of those that run, as far as the host has
// said so.
func (h *host) count(principal *protocol.Principal) (sessions, running int) {
	for _, e := range h.sessions {
		if principal != nil && !principal.CanSee(e.Labels) {
			continue
		}
		sessions++
		if e.State == protocol.StateRunning {
			running++
		}
	}
	return sessions, running
}

// A Summary has the numbers of hosts and sessions.
type Summary struct {
	Hosts        map[gate.HostState]int
	Sessions     int
	OldestRecord time.Duration // age of the oldest record that is the last one of its host; 0 if there is no record
}

// Summary returns the present numbers.
func (d *Directory) Summary(now time.Time) Summary {
	d.mu.RLock()
	defer d.mu.RUnlock()
	s := Summary{Hosts: map[gate.HostState]int{gate.HostReady: 0, gate.HostIdle: 0, gate.HostUnreachable: 0}}
	for _, h := range d.byKey {
		s.Hosts[gate.HostInfo{IsReachable: d.isReachable(h, now), IsServing: h.about.IsServing}.State()]++
		s.Sessions += len(h.sessions)
		if !h.seenAt.IsZero() {
			s.OldestRecord = max(s.OldestRecord, now.Sub(h.seenAt))
		}
	}
	return s
}

// IsGateReachable reports whether a gate can be reached.
func (d *Directory) IsGateReachable(address string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.gates[address]
}

// begin returns the index of the first name after after.
func (d *Directory) begin(after string) int {
	i, isThere := slices.BinarySearch(d.names, after)
	if isThere && after != "" {
		i++
	}
	return i
}

// size returns the number of bytes of labels in JSON, if each byte has an escape.
func size(labels map[string]string) (n int) {
	for k, v := range labels {
		n += 6*(len(k)+len(v)) + 6
	}
	return n
}

// A Filter selects sessions. Its zero value selects all.
type Filter struct {
	Who    *protocol.Principal // sessions that this client sees, which may name an ID without the suffix of its workspace; nil selects all
	ID     protocol.SessionID
	Host   string
	State  protocol.State
	Labels map[string]string
	// Command selects sessions with this text in their command.
	Command string
}

// Sessions returns the sessions that f selects and that come after HOST/ID, sorted by host and id, at
// most gate.MaxRows. next is the HOST/ID after which more sessions follow, or "".
func (d *Directory) Sessions(f Filter, after string, now time.Time) (rows []gate.SessionRow, next string) {
	d.mu.Lock() // to sort ids
	defer d.mu.Unlock()
	afterHost, afterID := "", protocol.SessionID("")
	if i := strings.LastIndexByte(after, '/'); i >= 0 {
		afterHost, afterID = after[:i], protocol.SessionID(after[i+1:])
	}
	i, _ := slices.BinarySearch(d.names, afterHost)
	room := gate.MaxPage
	for _, name := range d.names[i:] {
		if f.Host != "" && name != f.Host {
			continue
		}
		h := d.byName[name]
		if !h.isListed(f.Who) {
			continue
		}
		isReachable := d.isReachable(h, now)
		var ids []protocol.SessionID
		if f.ID == "" {
			ids = h.after(name == afterHost, afterID)
		}
		for _, id := range f.ids() {
			if _, exists := h.sessions[id]; exists && (name != afterHost || id > afterID) {
				ids = append(ids, id)
			}
		}
		for _, id := range ids {
			row, isSelected := h.row(id, isReachable, f)
			if !isSelected {
				continue
			}
			if room -= 256 + len(name) + 6*(len(row.Title)+len(row.Command)) + size(row.Labels); room < 0 && len(rows) > 0 || len(rows) == gate.MaxRows {
				last := rows[len(rows)-1]
				return rows, last.Host + "/" + string(last.ID)
			}
			rows = append(rows, row)
		}
	}
	return rows, ""
}

// ids returns the ids that the filter names.
func (f Filter) ids() []protocol.SessionID {
	switch {
	case f.ID == "":
		return nil
	case f.Who == nil:
		return []protocol.SessionID{f.ID}
	}
	return f.Who.IDs(f.ID)
}

// after returns the sorted ids of the sessions, or of those after id if isPart is set.
func (h *host) after(isPart bool, id protocol.SessionID) []protocol.SessionID {
	if h.order == nil {
		h.order = slices.SortedFunc(maps.Keys(h.sessions), cmp.Compare[protocol.SessionID])
	}
	if !isPart {
		return h.order
	}
	i, isThere := slices.BinarySearch(h.order, id)
	if isThere {
		i++
	}
	return h.order[i:]
}

// row returns the row of a session, and whether the filter selects it. A host tells the changes of sessions while its proxy
// serves, and a host whose proxy has just begun to serve tells them before its record says so.
func (h *host) row(id protocol.SessionID, isReachable bool, f Filter) (row gate.SessionRow, isSelected bool) {
	s := h.sessions[id]
	if f.Who != nil && !f.Who.CanSee(s.Labels) {
		return row, false
	}
	state := s.State
	if !isReachable || !h.about.IsServing && !h.about.Before(s.told) {
		state = gate.StateUnknown
	}
	if f.State != "" && f.State != state || !strings.Contains(s.Command, f.Command) || !protocol.HasLabels(s.Labels, f.Labels) {
		return row, false
	}
	return gate.SessionRow{
		Host: h.name, ID: s.ID, Instance: s.Instance, State: string(state), Cols: s.Size.Cols, Rows: s.Size.Rows, Title: s.Title,
		Command: s.Command, Labels: s.Labels, CreatedAt: s.CreatedAt, ExitCode: s.ExitCode,
	}, true
}
