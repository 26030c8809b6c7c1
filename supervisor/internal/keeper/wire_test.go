//go:build linux

package keeper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// messages are one of each, with all that it may have.
var messages = map[string]Message{
	"hello":        {Op: OpHello, Version: 1},
	"put":          {Op: OpPut, Seq: 1, ID: "a", PID: 42, Meta: []byte{0, 1, 255}, FDs: 2},
	"pid":          {Op: OpPID, Seq: 2, ID: "a", PID: 43},
	"delete":       {Op: OpDelete, Seq: 3, ID: "a"},
	"ready":        {Op: OpReady, Seq: 4},
	"exec":         {Op: OpExec, Seq: 5, Argv: []string{"/bin/keeper", "--flag"}, FDs: 1},
	"quit":         {Op: OpQuit, Seq: 6},
	"keeper_hello": {Op: OpHello, Version: 1, Records: 3, Starts: 2, Last: "SIGKILL", Status: 9},
	"record":       {Op: OpRecord, ID: "a", PID: 42, Meta: []byte{0, 1, 255}, FDs: 2},
	"exit":         {Op: OpExit, PID: 42, Status: 7 << 8},
	"end":          {Op: OpEnd},
	"ok":           {Op: OpOK, Seq: 1},
	"error":        {Op: OpError, Seq: 1, Message: "no such record"},
}

// TestGolden: version 1 is frozen. These bytes never change.
func TestGolden(t *testing.T) {
	for name, m := range messages {
		t.Run(name, func(t *testing.T) {
			frame, err := m.Frame()
			if err != nil {
				t.Fatal(err)
			}
			testkit.GoldenHex(t, "testdata/v1/"+name+".hex", frame)
			var back Message
			if err := json.Unmarshal(testkit.ReadHex(t, "testdata/v1/"+name+".hex")[4:], &back); err != nil || fmt.Sprint(back) != fmt.Sprint(m) {
				t.Errorf("read back %+v, %v", back, err)
			}
		})
	}
}

func TestGoldenManifest(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := manifest{
		Version: 1, Records: map[string]*record{"a": {42, []byte{0, 1, 255}, []int{7, 8}}, "b": {}},
		Exits: []exit{{42, 7 << 8, at}}, Starts: 2, Last: "SIGKILL", Status: 9,
		Supervisor: heir{PID: 41, Socket: 5, Ready: true, Quit: true, Unsent: []byte{1, 2}, Untold: []int{42}}, Good: 12, Answer: 5,
	}
	testkit.GoldenJSON(t, "testdata/v1/manifest.json", m)
	f, err := os.Open(filepath.Join("testdata", "v1", "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	back, err := load(fd)
	if got, want := asJSON(t, back), asJSON(t, m); err != nil || got != want {
		t.Errorf("read back %s, %v; want %s", got, err, want)
	}
}

func asJSON(t *testing.T, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func conns(t *testing.T) (a, b *Conn) {
	t.Helper()
	x, y, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []struct {
		fd int
		to **Conn
	}{{x, &a}, {y, &b}} {
		c, err := NewConn(end.fd)
		if err != nil {
			t.Fatal(err)
		}
		*end.to = c
		t.Cleanup(func() { c.Close() })
	}
	return a, b
}

// TestNonsense: what cannot be understood costs nothing behind it, and no
// descriptor stays open.
func TestNonsense(t *testing.T) {
	long := append([]byte{0, 3, 0, 0}, bytes.Repeat([]byte("x"), 3<<16)...)
	for name, tt := range map[string]struct {
		bytes []byte
		fds   int
	}{
		"empty": {[]byte{0, 0, 0, 0}, 0}, "no JSON": {[]byte("\x00\x00\x00\x03{]}"), 0}, "too long": {long, 0},
		"too long, with descriptors": {long, 5}, "not announced": {[]byte("\x00\x00\x00\x02{}"), 3},
		"too many": {[]byte("\x00\x00\x00\x0b{\"fds\":100}"), 100}, "too few": {[]byte("\x00\x00\x00\x09{\"fds\":3}"), 2},
		"wrong types": {[]byte("\x00\x00\x00\x08{\"op\":1}"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.CheckLeaks(t)
			a, b := conns(t)
			go func() {
				a.Send(tt.bytes, make([]int, tt.fds))
				frame, _ := messages["put"].Frame()
				a.Send(frame, []int{0, 1})
			}()
			_, fds, err := b.Receive()
			if bad := new(BadFrame); !errors.As(err, &bad) || fds != nil {
				t.Errorf("got %v, %v", fds, err)
			}
			m, fds, err := b.Receive()
			if err != nil || m.ID != "a" || len(fds) != 2 {
				t.Errorf("behind it: %+v, %v, %v", m, fds, err)
			}
			closeAll(fds)
		})
	}
}

// FuzzReceive: whatever comes, no panic, and an end.
func FuzzReceive(f *testing.F) {
	for _, m := range messages {
		frame, _ := m.Frame()
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b := conns(t)
		go func() { a.Send(in, nil); a.Close() }()
		for bad := new(BadFrame); ; {
			if _, fds, err := b.Receive(); len(fds) > 0 || err != nil && !errors.As(err, &bad) {
				break
			}
		}
	})
}

// TestHoldings compares with the plainest model, at small sizes and at the limits.
func TestHoldings(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	h, model := newHoldings(), map[string]int{}
	for range 50_000 {
		id, pid, size := fmt.Sprint(r.IntN(30)), 1<<30+r.IntN(10), r.IntN(100)
		switch _, known := model[id]; r.IntN(4) {
		case 0, 1:
			if err := h.put(id, &record{PID: pid, Meta: make([]byte, size)}); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			model[id] = size
		case 2:
			if err := h.delete(id); (err == nil) != known {
				t.Fatalf("seed %d: delete: %v", seed, err)
			}
			delete(model, id)
		case 3:
			h.setPID(id, pid)
		}
		total, named := 0, 0
		for _, size := range model {
			total += size
		}
		for _, n := range h.named {
			named += n
		}
		if len(h.records) != len(model) || h.meta != total || named != len(model) {
			t.Fatalf("seed %d: %d records of %d bytes, %d named; want %d of %d", seed, len(h.records), h.meta, named, len(model), total)
		}
	}
}

func TestHoldingsLimits(t *testing.T) {
	h := newHoldings()
	big := make([]byte, MaxMeta)
	for name, err := range map[string]error{
		"no id": h.put("", &record{}), "long id": h.put(strings.Repeat("x", MaxID+1), &record{}),
		"meta": h.put("a", &record{Meta: make([]byte, MaxMeta+1)}), "pid": h.put("a", &record{PID: -1}),
	} {
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for i := range MaxMetaTotal / MaxMeta {
		if err := h.put(fmt.Sprint(i), &record{Meta: big}); err != nil {
			t.Fatal(i, err)
		}
	}
	if h.put("a", &record{Meta: big[:1]}) == nil {
		t.Error("more than MaxMetaTotal is taken")
	}
	if err := h.put("0", &record{Meta: big}); err != nil {
		t.Errorf("in place of another: %v", err)
	}
	for i := len(h.records); i < MaxRecords; i++ {
		if err := h.put(fmt.Sprint(i), &record{}); err != nil {
			t.Fatal(i, err)
		}
	}
	if h.put("a", &record{}) == nil {
		t.Error("more than MaxRecords are taken")
	}
}

// TestExitsKept: those of records for ever, others for a while, and all are bounded.
func TestExitsKept(t *testing.T) {
	h, now := newHoldings(), time.Now()
	const first = 1 << 30 // above all pids
	if err := h.put("a", &record{PID: first}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxExits {
		h.ended(first+i, 7<<8, now.Add(time.Duration(i)*time.Microsecond))
	}
	if len(h.exits) > maxExits || h.exits[first].Status != 7<<8 {
		t.Errorf("%d exits, the named one %v", len(h.exits), h.exits[first])
	}
	h.forget(now.Add(2 * exitsKept))
	if len(h.exits) != 1 {
		t.Errorf("%d exits after a while, want that of the record", len(h.exits))
	}
	if err := h.delete("a"); err != nil || len(h.exits) != 0 {
		t.Errorf("after delete: %d exits, %v", len(h.exits), err)
	}
	// A pid that lives again: the old exit was another's.
	h.ended(os.Getpid(), 7<<8, now)
	if err := h.put("a", &record{PID: os.Getpid()}); err != nil || len(h.exits) != 0 {
		t.Errorf("a living pid has %d exits, %v", len(h.exits), err)
	}
}
