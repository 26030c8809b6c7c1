package directory

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/record"
)

// The addresses of the gate of the directory, and of another one.
const (
	own   = "own:1"
	other = "other:1"
)

var epoch = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// A source is the plainest host: it has its sessions, and the number of its last message.
type source struct {
	stamp    record.Stamp
	sessions map[string]json.RawMessage
}

func newSource() *source {
	return &source{record.Stamp{Epoch: 1}, map[string]json.RawMessage{}}
}

func (s *source) next() record.Stamp {
	s.stamp.Seq++
	return s.stamp
}

func (s *source) host() record.Host {
	var sum record.Sum
	for _, raw := range s.sessions {
		sum.Toggle(record.SumOf(raw))
	}
	return record.Host{Stamp: s.next(), IsServing: true, Count: len(s.sessions), Sum: sum.String()}
}

// linked returns a record that comes over a later connection.
func (s *source) linked(link uint64) record.Host {
	m := s.host()
	m.Link = link
	return m
}

func (s *source) set(id string, state protocol.State, labels map[string]string) record.Change {
	raw := record.Of(protocol.SessionInfo{ID: protocol.SessionID(id), State: state, Argv: []string{"sh"}, Labels: labels})
	s.sessions[id] = raw
	return record.Change{Stamp: s.next(), ID: protocol.SessionID(id), Session: raw}
}

func (s *source) end(id string) record.Change {
	delete(s.sessions, id)
	return record.Change{Stamp: s.next(), ID: protocol.SessionID(id)}
}

func (s *source) roster(perPiece int) (pieces []record.Piece) {
	var all []json.RawMessage
	for _, raw := range s.sessions {
		all = append(all, raw)
	}
	parts := slices.Collect(slices.Chunk(all, perPiece))
	if len(parts) == 0 {
		parts = append(parts, nil)
	}
	for i, part := range parts {
		pieces = append(pieces, record.Piece{Stamp: s.next(), Index: i, Total: len(parts), Sessions: part})
	}
	return pieces
}

// names returns HOST/ID and state of all rows, page by page.
func names(d *Directory, f Filter, now time.Time) string {
	var out []string
	for after := ""; ; {
		rows, next := d.Sessions(f, after, now)
		for _, r := range rows {
			out = append(out, r.Host+"/"+string(r.ID)+":"+r.State)
		}
		if next == "" {
			return strings.Join(out, " ")
		}
		after = next
	}
}

// joined returns a directory with one host "h".
func joined() *Directory {
	d := New(own)
	d.Join("K", "h")
	return d
}

// The sessions of a host stay when its agent starts again and has not listed them yet.
func TestUnlisted(t *testing.T) {
	d, s := joined(), newSource()
	d.Change("K", s.set("a", protocol.StateRunning, nil))
	for _, p := range s.roster(1) {
		d.Piece("K", p)
	}
	about := record.Host{Stamp: record.Stamp{Epoch: 2, Seq: 1}, Sum: record.Sum{}.String(), IsUnlisted: true}
	decoded, err := record.Decode[record.Host](record.Encode(about))
	if err != nil {
		t.Fatal(err)
	}
	if d.Host("K", own, decoded, epoch) {
		t.Error("a host that has no list is asked for its sessions")
	}
	if got := names(d, Filter{}, epoch); got != "h/a:unknown" {
		t.Errorf("before the list: %q", got)
	}
	s.stamp = about.Stamp
	d.Change("K", s.end("a"))
	if !d.Host("K", own, s.host(), epoch) { // the gate has missed the messages of the epoch before
		t.Error("a host with a list is not asked for its sessions")
	}
	if got := names(d, Filter{}, epoch); got != "" {
		t.Errorf("after the list: %q", got)
	}
}

// After the start of a gate, a host is listed for the clients of a workspace only when its first record has told to which
// workspace the host belongs. The clients can enter it before, because they may have been connected with it.
func TestUnknownWorkspace(t *testing.T) {
	d, s := joined(), newSource()
	all, of := &protocol.Principal{All: true}, func(workspace string) *protocol.Principal { return &protocol.Principal{Workspace: workspace} }
	listed := func(who *protocol.Principal) bool {
		list, _ := d.Hosts(who, "", epoch)
		return len(list) == 1
	}
	for _, who := range []*protocol.Principal{nil, all} {
		if !listed(who) {
			t.Errorf("before the record, %+v does not see the host", who)
		}
	}
	for _, workspace := range []string{"", "a", "b"} {
		if listed(of(workspace)) {
			t.Errorf("before the record, workspace %q sees the host", workspace)
		}
		if !d.IsVisible(of(workspace), "h") {
			t.Errorf("before the record, workspace %q cannot wait for the host", workspace)
		}
	}
	d.Change("K", s.set("of-a", protocol.StateRunning, map[string]string{protocol.LabelWorkspace: "a"}))
	if got := names(d, Filter{Who: of("a")}, epoch); got != "" {
		t.Errorf("before the record, workspace a sees %q", got)
	}
	about := s.host()
	about.Labels = map[string]string{protocol.LabelWorkspace: "b"}
	d.Host("K", own, about, epoch)
	if !listed(all) || !listed(of("b")) || listed(of("a")) || listed(of("")) {
		t.Error("after the record, not workspace b alone sees the host")
	}
}

// A host is hidden from no client without a principal, also if it was removed after the gate has resolved its name.
func TestRemovedIsNotHidden(t *testing.T) {
	d := joined()
	d.Remove("K")
	if !d.IsVisible(nil, "h") {
		t.Error("a removed host is hidden from a client that sees all")
	}
	if d.IsVisible(&protocol.Principal{Workspace: "a"}, "h") {
		t.Error("a workspace sees a removed host")
	}
}

func TestOrder(t *testing.T) {
	d, s := joined(), newSource()
	a, b := s.set("a", protocol.StateRunning, nil), s.set("b", protocol.StateRunning, nil)
	for _, m := range []record.Change{b, a} { // a arrives late, and must be ignored
		d.Change("K", m)
	}
	if !d.Host("K", own, s.host(), epoch) {
		t.Error("the loss of a change is not noticed")
	}
	if got := names(d, Filter{}, epoch); got != "h/b:running" {
		t.Errorf("got %s", got)
	}
	for _, p := range s.roster(1) {
		d.Piece("K", p)
	}
	if got := names(d, Filter{}, epoch); got != "h/a:running h/b:running" {
		t.Errorf("after the roster: %s", got)
	}
	if d.Host("K", own, s.host(), epoch) {
		t.Error("a copy that equals the host is stale")
	}
	if d.Change("K", s.end("a")) || names(d, Filter{}, epoch) != "h/b:running" {
		t.Errorf("after the end of a: %s", names(d, Filter{}, epoch))
	}
	next := newSource()
	next.stamp.Epoch = 2
	if !d.Host("K", own, next.host(), epoch) {
		t.Error("the first message of another epoch does not make the copy stale")
	}
	if d.Change("K", s.set("old", protocol.StateExited, nil)); names(d, Filter{}, epoch) != "h/b:running" {
		t.Errorf("a message of an older epoch has changed the copy: %s", names(d, Filter{}, epoch))
	}
}

// A session is unknown while its host is late, not connected, or has no proxy. It is never exited.
func TestUnknown(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Directory, *source)
		after  time.Duration
		want   string
	}{
		{"seen just now", func(*Directory, *source) {}, 0, "running"},
		{"seen 29 s ago", func(*Directory, *source) {}, 29 * time.Second, "running"},
		{"seen 30 s ago", func(*Directory, *source) {}, 30 * time.Second, "unknown"},
		{"disconnected", func(d *Directory, _ *source) { d.Disconnect("K") }, 0, "unknown"},
		{"a late record of the connection that has ended", func(d *Directory, s *source) { d.Disconnect("K"); d.Host("K", own, s.host(), epoch) }, 0, "unknown"},
		{"connected again", func(d *Directory, s *source) { d.Disconnect("K"); d.Host("K", own, s.linked(1), epoch) }, 0, "running"},
		{"moved to a gate that cannot be reached", func(d *Directory, s *source) { d.Host("K", other, s.linked(1), epoch) }, 0, "unknown"},
		{"moved to another gate", func(d *Directory, s *source) { d.SetGate(other, true); d.Host("K", other, s.linked(1), epoch) }, 0, "running"},
		{"moved, and then the old connection ends", func(d *Directory, s *source) {
			d.SetGate(other, true)
			d.Host("K", other, s.linked(1), epoch)
			if lost := d.Disconnect("K"); lost != (record.Lost{}) {
				panic(fmt.Sprintf("other gates are told %+v", lost))
			}
		}, 0, "running"},
		{"moved, and the other gate is lost", func(d *Directory, s *source) {
			d.SetGate(other, true)
			d.Host("K", other, s.linked(1), epoch)
			d.SetGate(other, false)
		}, 0, "unknown"},
		{"lost by the other gate", func(d *Directory, s *source) {
			d.SetGate(other, true)
			d.Host("K", other, s.linked(1), epoch)
			d.Lost("K", other, record.Lost{Epoch: 1, Link: 1})
		}, 0, "unknown"},
		{"lost by the other gate before it came back there", func(d *Directory, s *source) {
			d.SetGate(other, true)
			d.Host("K", other, s.linked(2), epoch)
			d.Lost("K", other, record.Lost{Epoch: 1, Link: 1})
		}, 0, "running"},
		{"without a proxy", func(d *Directory, s *source) {
			m := s.host()
			m.IsServing = false
			d.Host("K", own, m, epoch)
		}, 0, "unknown"},
		{"with a proxy again, before the record of the host tells that", func(d *Directory, s *source) {
			m := s.host()
			m.IsServing = false
			d.Host("K", own, m, epoch)
			d.Change("K", s.set("a", protocol.StateExited, nil))
		}, 0, "exited"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, s := joined(), newSource()
			d.Change("K", s.set("a", protocol.StateRunning, nil))
			d.Host("K", own, s.host(), epoch)
			tt.change(d, s)
			if got := names(d, Filter{}, epoch.Add(tt.after)); got != "h/a:"+tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			_, at := d.Resolve("h", epoch.Add(tt.after))
			if hosts, _ := d.Hosts(nil, "", epoch.Add(tt.after)); hosts[0].IsReachable != (at != "") || hosts[0].Gate != at || hosts[0].Sessions != 1 {
				t.Errorf("hosts are %+v, reached at %q", hosts, at)
			}
		})
	}
}

func TestFilterAndPages(t *testing.T) {
	d := New(own)
	var want []string
	for i := range 3 {
		key, name, s := fmt.Sprint("K", i), fmt.Sprint("h", i), newSource()
		d.Join(key, name)
		for j := range 5000 {
			id := fmt.Sprintf("s%04d", j)
			d.Change(key, s.set(id, protocol.StateRunning, map[string]string{"even": fmt.Sprint(j%2 == 0)}))
			want = append(want, name+"/"+id+":running")
		}
		d.Host(key, own, s.host(), epoch)
	}
	if got := names(d, Filter{}, epoch); got != strings.Join(want, " ") {
		t.Errorf("got %d bytes, want %d", len(got), len(strings.Join(want, " ")))
	}
	if rows, next := d.Sessions(Filter{}, "", epoch); len(rows) > gate.MaxRows || next == "" {
		t.Errorf("a page has %d rows, next %q", len(rows), next)
	}
	for _, tt := range []struct {
		f    Filter
		want int
	}{
		{Filter{Host: "h1"}, 5000}, {Filter{Host: "none"}, 0}, {Filter{State: protocol.StateExited}, 0},
		{Filter{ID: "s0007"}, 3}, {Filter{ID: "s0007", Host: "h1"}, 1}, {Filter{ID: "s0007", State: protocol.StateExited}, 0}, {Filter{ID: "none"}, 0},
		{Filter{Command: "sh"}, 15_000}, {Filter{Command: "sh -c"}, 0},
		{Filter{Labels: map[string]string{"even": "true"}}, 7500}, {Filter{Host: "h2", Labels: map[string]string{"even": "false", "x": ""}}, 0},
	} {
		if got := len(strings.Fields(names(d, tt.f, epoch))); got != tt.want {
			t.Errorf("%+v: %d rows, want %d", tt.f, got, tt.want)
		}
	}
	if rows, _ := d.Sessions(Filter{ID: "s0007"}, "h0/s0007", epoch); len(rows) != 2 || rows[0].Host != "h1" {
		t.Errorf("after h0/s0007 come %+v", rows)
	}
	d.Remove("K1")
	if hosts, next := d.Hosts(nil, "h0", epoch); len(hosts) != 1 || hosts[0].Name != "h2" || next != "" {
		t.Errorf("after h0 come %+v", hosts)
	}
	if key, _ := d.Resolve("h1", epoch); key != "" || d.Name("K1") != "" {
		t.Error("a removed host is found")
	}
}

// The largest page fits into a frame.
func TestPageFits(t *testing.T) {
	d, s := joined(), newSource()
	labels := map[string]string{"k": strings.Repeat("\x01", 4000)} // six bytes each in JSON
	for i := range 100 {
		d.Change("K", s.set(fmt.Sprint(i), protocol.StateRunning, labels))
	}
	rows, next := d.Sessions(Filter{}, "", epoch)
	b, err := protocol.Encode(gate.SessionList{Sessions: rows, Next: next})
	if err != nil || len(b) >= gate.MaxAnswer || next == "" {
		t.Errorf("%d rows have %d bytes, %v", len(rows), len(b), err)
	}
}

// simulate: messages of a host are lost, doubled and delivered late at random. After each roster that
// arrives completely the copy equals the host, and the next record agrees. A copy that differs from the
// host is reported as stale by the next record.
func simulate(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	d, s := joined(), newSource()
	var late []record.Change
	for range 400 {
		switch id := fmt.Sprint(r.IntN(12)); r.IntN(6) {
		case 0, 1:
			m := s.set(id, []protocol.State{protocol.StateRunning, protocol.StateExited}[r.IntN(2)], nil)
			if r.IntN(4) > 0 {
				d.Change("K", m)
			}
			late = append(late, m)
		case 2:
			if m := s.end(id); r.IntN(4) > 0 {
				d.Change("K", m)
			}
		case 3:
			if len(late) > 0 {
				d.Change("K", late[r.IntN(len(late))])
			}
		case 4:
			s.stamp = record.Stamp{Epoch: s.stamp.Epoch + uint64(r.IntN(2)), Seq: s.stamp.Seq}
		case 5:
			isStale := d.Host("K", own, s.host(), epoch)
			if !isStale && !equal(d, s) {
				t.Fatalf("seed %d: the copy differs and is not stale:\n%s", seed, names(d, Filter{}, epoch))
			}
			if isStale {
				arrives := true
				for _, p := range s.roster(1 + r.IntN(5)) {
					if r.IntN(10) == 0 {
						arrives = false
						continue
					}
					d.Piece("K", p)
				}
				if arrives && !equal(d, s) {
					t.Fatalf("seed %d: after the roster the copy differs", seed)
				}
			}
		}
	}
}

func equal(d *Directory, s *source) bool {
	rows, _ := d.Sessions(Filter{}, "", epoch)
	for _, row := range rows {
		want, err := record.ParseSession(s.sessions[string(row.ID)])
		if err != nil || row.State != string(want.State) {
			return false
		}
	}
	return len(rows) == len(s.sessions)
}

func TestSimulate(t *testing.T) {
	for seed := range uint64(200) {
		simulate(t, seed)
	}
}

// FuzzMessages: whatever a host sends, the directory does not panic, and keeps its limits.
func FuzzMessages(f *testing.F) {
	f.Add(uint8(0), []byte(`{"epoch":1,"seq":1,"count":0,"sum":"`+strings.Repeat("00", 32)+`"}`))
	f.Add(uint8(1), []byte(`{"epoch":1,"seq":2,"id":"a","session":{"id":"a"}}`))
	f.Add(uint8(2), []byte(`{"epoch":1,"seq":3,"index":0,"total":1,"sessions":[{"id":"a"},{"id":"a"},1]}`))
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		d := joined()
		switch kind % 3 {
		case 0:
			if m, err := record.Decode[record.Host](data); err == nil {
				d.Host("K", own, m, epoch)
			}
		case 1:
			if m, err := record.Decode[record.Change](data); err == nil {
				d.Change("K", m)
			}
		case 2:
			if m, err := record.Decode[record.Piece](data); err == nil {
				d.Piece("K", m)
			}
		}
		rows, _ := d.Sessions(Filter{}, "", epoch)
		if _, err := protocol.Encode(gate.SessionList{Sessions: rows}); err != nil {
			t.Error(err)
		}
	})
}

func fill(hosts, sessions int) *Directory {
	d := New(own)
	for i := range hosts {
		key, s := fmt.Sprint("K", i), newSource()
		d.Join(key, fmt.Sprintf("host-%04d", i))
		for j := range sessions {
			d.Change(key, s.set(fmt.Sprintf("session-%03d", j), protocol.StateRunning, map[string]string{"team": fmt.Sprint(j % 10)}))
		}
		d.Host(key, own, s.host(), epoch)
	}
	return d
}

// BenchmarkDirectory measures a directory of 1,000 hosts with 100 sessions each: the times of an answer, of which 99 of 100
// are at most p99, and the memory that the directory occupies.
func BenchmarkDirectory(b *testing.B) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d := fill(1000, 100)
	runtime.GC()
	runtime.ReadMemStats(&after)
	heap := float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20)
	for _, ask := range []struct {
		name string
		ask  func(i int)
	}{
		{"resolve", func(i int) {
			if key, _ := d.Resolve(fmt.Sprintf("host-%04d", i%1000), epoch); key == "" {
				b.Fatal("not found")
			}
		}},
		{"none", func(int) { // passes all rows, and returns none of them
			if rows, _ := d.Sessions(Filter{Labels: map[string]string{"team": "3"}, State: protocol.StateExited}, "", epoch); len(rows) != 0 {
				b.Fatal("found")
			}
		}},
		{"all", func(int) {
			n := 0
			for after := ""; ; {
				rows, next := d.Sessions(Filter{}, after, epoch)
				if n += len(rows); next == "" {
					break
				}
				after = next
			}
			if n != 100_000 {
				b.Fatal(n)
			}
		}},
	} {
		b.Run(ask.name, func(b *testing.B) {
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				begun := time.Now()
				ask.ask(i)
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-µs")
			b.ReportMetric(heap, "heap-MiB")
		})
	}
}
