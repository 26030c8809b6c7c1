package record

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nkeys"

	"holdfast/protocol/gate"
)

// Limits of Members.
const (
	MaxHosts   = 10_000
	MaxRevoked = 10_000 // the earliest are forgotten
	maxNames   = 64     // gates, with those that were removed
	perMessage = 2000   // entries in one message
)

// Members are the hosts and gates that belong together, as a gate knows them. Each gate has its own
// Members, and Merge makes them equal.
//
// Each entry has the time at which a gate has made it. Revoked keys are remembered, so that a host that
// was revoked stays out when a gate comes back that has not heard of it.
type Members struct {
	Hosts   map[string]Joined    `json:"hosts,omitempty"`   // by name
	Revoked map[string]time.Time `json:"revoked,omitempty"` // by key
	Gates   map[string]Place     `json:"gates,omitempty"`   // by address
	Client  ClientToken          `json:"client,omitzero"`
}

// A ClientToken is the token of clients, and the time at which it was renewed. The first token of a gate has
// the zero time.
type ClientToken struct {
	Text string    `json:"text"`
	At   time.Time `json:"at,omitzero"`
}

// Joined is a host that has joined.
type Joined struct {
	Key string    `json:"key"`
	At  time.Time `json:"at"`
}

// A Place is the address of a gate.
type Place struct {
	At        time.Time `json:"at"`
	IsRemoved bool      `json:"removed,omitempty"`
}

// MemberSum tells the Sum of the Members of a gate.
type MemberSum struct {
	From string `json:"from"` // address of the gate
	Sum  string `json:"sum"`
}

// Addresses returns the addresses of the gates that were not removed, sorted, at most gate.MaxGates.
func (m Members) Addresses() []string {
	var all []string
	for address, p := range m.Gates {
		if !p.IsRemoved {
			all = append(all, address)
		}
	}
	slices.Sort(all)
	return all[:min(len(all), gate.MaxGates)]
}

// IsEmpty reports whether there is no entry.
func (m Members) IsEmpty() bool {
	return len(m.Hosts)+len(m.Revoked)+len(m.Gates) == 0 && m.Client.Text == ""
}

// Sum returns a hash of all entries.
func (m Members) Sum() string {
	var sum Sum
	add := func(words ...any) { sum.Toggle(sha256.Sum256([]byte(fmt.Sprintln(words...)))) }
	for name, h := range m.Hosts {
		add("host", name, h.Key, h.At.UnixNano())
	}
	for key, at := range m.Revoked {
		add("revoked", key, at.UnixNano())
	}
	for address, p := range m.Gates {
		add("gate", address, p.IsRemoved, p.At.UnixNano())
	}
	if m.Client.Text != "" {
		add("client", m.Client.Text, m.Client.At.UnixNano())
	}
	return sum.String()
}

// Merge returns the members of m and n. A revoked key wins against a host that has joined with it, and such a
// host takes no part in the conflicts that follow. If two hosts have joined under one name at gates that were
// not connected, the first one keeps the name, and the other one is revoked. A key that has two names is
// revoked. Of two entries of a gate, and of two tokens of clients, the later one wins.
func (m Members) Merge(n Members) Members {
	r := Members{Hosts: map[string]Joined{}, Revoked: maps.Clone(m.Revoked), Gates: maps.Clone(m.Gates), Client: m.Client}
	if c := n.Client; c.Text != "" && cmp.Or(c.At.Compare(m.Client.At), cmp.Compare(c.Text, m.Client.Text)) > 0 {
		r.Client = c
	}
	if r.Revoked == nil {
		r.Revoked = map[string]time.Time{}
	}
	if r.Gates == nil {
		r.Gates = map[string]Place{}
	}
	revoke := func(key string, at time.Time) {
		if before, ok := r.Revoked[key]; !ok || at.Before(before) {
			r.Revoked[key] = at
		}
	}
	for key, at := range n.Revoked {
		revoke(key, at)
	}
	// A gate that was away may know a host by a key that was revoked meanwhile, and the host may have joined again with
	// another key. The old entry is the earlier one, and would revoke the new key. The loop over the hosts revokes keys,
	// too. They must not be skipped there, because the result would then depend on the order of the hosts.
	gone := maps.Clone(r.Revoked)
	for address, p := range n.Gates {
		before := r.Gates[address] // the zero value is older than all
		if p.At.After(before.At) || p.At.Equal(before.At) && p.IsRemoved {
			r.Gates[address] = p
		}
	}
	type use struct {
		name string
		at   time.Time
	}
	uses := map[string]use{} // by key
	for _, hosts := range []map[string]Joined{m.Hosts, n.Hosts} {
		for name, h := range hosts {
			if _, isGone := gone[h.Key]; isGone {
				continue
			}
			if before, ok := uses[h.Key]; ok && before.name != name {
				revoke(h.Key, before.at)
				revoke(h.Key, h.At)
			}
			uses[h.Key] = use{name, h.At}
			before, isTaken := r.Hosts[name]
			switch {
			case !isTaken, before.Key == h.Key && h.At.Before(before.At):
				r.Hosts[name] = h
			case before.Key == h.Key:
			case h.At.Before(before.At) || h.At.Equal(before.At) && h.Key < before.Key:
				revoke(before.Key, before.At)
				r.Hosts[name] = h
			default:
				revoke(h.Key, h.At)
			}
		}
	}
	maps.DeleteFunc(r.Hosts, func(_ string, h Joined) bool { _, isRevoked := r.Revoked[h.Key]; return isRevoked })
	trim(r.Hosts, MaxHosts, func(h Joined) int64 { return -h.At.UnixNano() })
	trim(r.Revoked, MaxRevoked, time.Time.UnixNano)
	trim(r.Gates, maxNames, func(p Place) int64 { return p.At.UnixNano() })
	return r
}

// trim removes the entries with the lowest rank until at most limit are left. All gates remove the same.
func trim[V any](m map[string]V, limit int, rank func(V) int64) {
	if len(m) <= limit {
		return
	}
	order := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(m[a]), rank(m[b])), cmp.Compare(a, b))
	})
	for _, key := range order[:len(m)-limit] {
		delete(m, key)
	}
}

// Without returns the entries of m that before has not.
func (m Members) Without(before Members) Members {
	r := Members{
		Hosts:   newer(m.Hosts, before.Hosts, func(a, b Joined) bool { return a.Key == b.Key && a.At.Equal(b.At) }),
		Revoked: newer(m.Revoked, before.Revoked, time.Time.Equal),
		Gates:   newer(m.Gates, before.Gates, func(a, b Place) bool { return a.IsRemoved == b.IsRemoved && a.At.Equal(b.At) }),
	}
	if m.Client.Text != before.Client.Text || !m.Client.At.Equal(before.Client.At) {
		r.Client = m.Client
	}
	return r
}

func newer[V any](m, before map[string]V, isEqual func(a, b V) bool) map[string]V {
	r := map[string]V{}
	for key, v := range m {
		if old, ok := before[key]; !ok || !isEqual(old, v) {
			r[key] = v
		}
	}
	return r
}

// Split returns the entries of m in parts that fit into a message each.
func (m Members) Split() (parts []Members) {
	var part Members
	count := 0
	next := func() *Members {
		if count%perMessage == 0 {
			part = Members{Hosts: map[string]Joined{}, Revoked: map[string]time.Time{}, Gates: map[string]Place{}}
			parts = append(parts, part)
		}
		count++
		return &part
	}
	if m.Client.Text != "" {
		parts = append(parts, Members{Client: m.Client})
	}
	for key, at := range m.Revoked { // first, so that a part never shows a host as joined that another part revokes
		next().Revoked[key] = at
	}
	for name, h := range m.Hosts {
		next().Hosts[name] = h
	}
	for address, p := range m.Gates {
		next().Gates[address] = p
	}
	return parts
}

func (m *Members) check() error {
	if b, err := hex.DecodeString(m.Client.Text); err != nil || m.Client.Text != "" && len(b) != gate.TokenBytes {
		return errors.New("the token of clients is not valid")
	}
	for name, h := range m.Hosts {
		if !gate.ValidHost(name) || !nkeys.IsValidPublicUserKey(h.Key) {
			return fmt.Errorf("host %.80q with key %.80q is not valid", name, h.Key)
		}
	}
	for key := range m.Revoked {
		if !nkeys.IsValidPublicUserKey(key) {
			return fmt.Errorf("revoked key %.80q is not valid", key)
		}
	}
	for address := range m.Gates {
		if !gate.ValidAddress(address) {
			return fmt.Errorf("%.80q is no address of a gate", address)
		}
	}
	return nil
}
