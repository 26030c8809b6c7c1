package record

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
)

// keys are public keys of hosts.
var keys = func() (all [16]string) {
	for n := range all {
		pair, err := nkeys.FromRawSeed(nkeys.PrefixByteUser, append(make([]byte, 31), byte(n)))
		if err != nil {
			panic(err)
		}
		if all[n], err = pair.PublicKey(); err != nil {
			panic(err)
		}
	}
	return all
}()

func keyOf(n byte) string { return keys[n] }

func at(second int) time.Time { return time.Date(2026, 11, 1, 12, 0, second, 0, time.UTC) }

func host(name string, key byte, second int) Members {
	return Members{Hosts: map[string]Joined{name: {keyOf(key), at(second)}}}
}

func revoked(key byte, second int) Members {
	return Members{Revoked: map[string]time.Time{keyOf(key): at(second)}}
}

func place(address string, second int, isRemoved bool) Members {
	return Members{Gates: map[string]Place{address: {at(second), isRemoved}}}
}

func client(digit byte, second int) Members {
	return Members{Client: ClientToken{strings.Repeat(string(digit), 64), at(second)}}
}

// short returns the hosts, the revoked keys, the gates and a digit of the token of clients in a few words.
func short(m Members) string {
	number := map[string]int{}
	for n := range byte(16) {
		number[keyOf(n)] = int(n)
	}
	hosts, revoked := map[string]int{}, map[int]int{}
	for name, h := range m.Hosts {
		hosts[name] = number[h.Key]
	}
	for key, when := range m.Revoked {
		revoked[number[key]] = when.Second()
	}
	return strings.TrimSpace(fmt.Sprintln(hosts, revoked, m.Addresses(), m.Client.Text[:min(1, len(m.Client.Text))]))
}

func TestMerge(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b Members
		want string
	}{
		{"two hosts", host("a", 1, 1), host("b", 2, 1), "map[a:1 b:2] map[] []"},
		{"a host that was revoked", host("a", 1, 9), revoked(1, 1), "map[] map[1:1] []"},
		{"revoked twice", revoked(1, 1), revoked(1, 2), "map[] map[1:1] []"},
		{"one name, two keys", host("a", 1, 2), host("a", 2, 1), "map[a:2] map[1:2] []"},
		{"one key, two names", host("a", 1, 2), host("b", 1, 1), "map[] map[1:1] []"},
		{"a host that has joined again with another key", host("a", 1, 1).Merge(revoked(1, 2)).Merge(host("a", 2, 3)), host("a", 1, 1), "map[a:2] map[1:2] []"},
		{"the same host twice", host("a", 1, 2), host("a", 1, 1), "map[a:1] map[] []"},
		{"a gate that was removed", place("a:1", 1, false), place("a:1", 2, true), "map[] map[] []"},
		{"a gate that is back", place("a:1", 3, false), place("a:1", 2, true), "map[] map[] [a:1]"},
		{"a token that was renewed", client('a', 1), client('b', 2), "map[] map[] [] b"},
		{"two tokens at the same time", client('b', 1), client('a', 1), "map[] map[] [] b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, y := tt.a.Merge(tt.b), tt.b.Merge(tt.a)
			if short(x) != tt.want || x.Sum() != y.Sum() {
				t.Errorf("got %s and %s, want %s", short(x), short(y), tt.want)
			}
			if again := x.Merge(tt.a); again.Sum() != x.Sum() || !again.Without(x).IsEmpty() {
				t.Errorf("the same again changes it to %s", short(again))
			}
		})
	}
}

// Gates that tell each other random changes in a random order become equal, and no revoked host is left.
func TestMergeConverges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		gates := make([]Members, 3)
		all := map[byte]bool{}
		for range 40 {
			g, n := r.IntN(3), byte(r.IntN(8))
			name := string(rune('a' + r.IntN(4)))
			var change Members
			switch r.IntN(5) {
			case 0, 1:
				change = host(name, n, r.IntN(5))
			case 2:
				change, all[n] = revoked(n, r.IntN(5)), true
			case 3:
				change = place(name+":1", r.IntN(5), r.IntN(2) == 0)
			case 4:
				change = client('a'+byte(r.IntN(3)), r.IntN(5))
			}
			gates[g] = gates[g].Merge(change)
			if r.IntN(3) == 0 {
				gates[r.IntN(3)] = gates[r.IntN(3)].Merge(gates[g])
			}
		}
		for range 3 {
			for i := range gates {
				for j := range gates {
					gates[i] = gates[i].Merge(gates[j])
				}
			}
		}
		if gates[0].Sum() != gates[1].Sum() || gates[1].Sum() != gates[2].Sum() {
			t.Fatalf("the gates differ: %s, %s, %s", short(gates[0]), short(gates[1]), short(gates[2]))
		}
		for _, h := range gates[0].Hosts {
			if _, isRevoked := gates[0].Revoked[h.Key]; isRevoked {
				t.Fatalf("a revoked host is there: %s", short(gates[0]))
			}
		}
	}
}

// Limits hold, and the parts of large members fit into messages and make the whole again.
func TestMembersLimits(t *testing.T) {
	m := Members{Revoked: map[string]time.Time{}}
	for i := range MaxRevoked + 10 {
		m.Revoked[fmt.Sprintf("U%055d", i)] = at(0).Add(time.Duration(i) * time.Second) // Merge does not read a key
	}
	m = m.Merge(host("h", 1, 1)).Merge(place("a:1", 1, false)).Merge(client('a', 1))
	if len(m.Revoked) != MaxRevoked {
		t.Errorf("%d keys are revoked", len(m.Revoked))
	}
	for _, when := range m.Revoked {
		if when.Before(at(10)) {
			t.Fatal("one of the earliest is left")
		}
	}
	var whole Members
	for _, part := range m.Split() {
		if b := Encode(part); len(b) > MaxMessage/2 {
			t.Errorf("a part has %d bytes", len(b))
		}
		whole = whole.Merge(part)
	}
	if whole.Sum() != m.Sum() {
		t.Error("the parts do not make the whole")
	}
}
