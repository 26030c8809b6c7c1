package vt_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"unsafe"

	"holdfast/supervisor/internal/vt"
	"holdfast/supervisor/internal/vt/vttest"
)

// busy returns a terminal that has received much output of every kind.
func busy(seed uint64) *vt.Term {
	t := vt.New(vt.Config{Cols: 60, Rows: 15, HistoryLines: 100, Events: func(vt.Event) {}})
	rgb := uint32(0x123456)
	t.SetAppearance(vt.Appearance{Background: &rgb})
	for i := range uint64(4) {
		steps := vttest.Stream(rand.New(rand.NewPCG(seed, i)), vttest.StreamOptions{Cols: 60, Rows: 15, NoReset: true, NoResize: true})
		vttest.Do(t, steps)
	}
	t.Write([]byte("\x18\x1b]8;id=a;http://x\x07e\u0301\x1b]8;;\x07\x1b]4;1;#123456\x07\x1b[22;0t\x1b[>1u\x1b]133;A\x07\x1b]2;cut"))
	return t
}

func TestCopy(t *testing.T) {
	for seed := range uint64(50) {
		term := busy(seed)
		if seed%2 == 0 {
			term.Pack()
		}
		want := term.State()
		lines := want.Normal.History
		c := term.Copy(lines)
		if got := c.State(); vttest.Diff(got, want) != "" || got.Pending != want.Pending || !reflect.DeepEqual(got.Colors, want.Colors) || !reflect.DeepEqual(got.Keyboard, want.Keyboard) {
			t.Fatalf("seed %d: a copy differs: %s", seed, vttest.Diff(got, want))
		}
		of, os, on := term.LineNumbers()
		if f, s, n := c.LineNumbers(); f != of || s != os || n != on {
			t.Errorf("seed %d: lines are numbered %d, %d, %d, want %d, %d, %d", seed, f, s, n, of, os, on)
		}
		less := term.Copy(lines / 2).State()
		if less.Normal.History != lines/2 || vttest.Diff(onScreen(less), onScreen(want)) != "" {
			t.Errorf("seed %d: a copy with %d of %d lines has %d: %s", seed, lines/2, lines, less.Normal.History, vttest.Diff(onScreen(less), onScreen(want)))
		}
		more := []byte("\x1b\\\x1b[31m" + string(make([]byte, 10)) + "more\r\n\x1b[Hx\x1b[2;5r\x1b[23;0t\x1b[<u")
		c.Write(more)
		if vttest.Diff(term.State(), want) != "" {
			t.Fatalf("seed %d: a write to the copy changes the terminal that was copied", seed)
		}
		term.Write(more)
		if diff := vttest.Diff(c.State(), term.State()); diff != "" {
			t.Errorf("seed %d: after the same output the copy differs: %s", seed, diff)
		}
	}
}

func onScreen(s *vt.State) *vt.State {
	c := *s
	c.Normal.Lines, c.Normal.History = c.Normal.Lines[c.Normal.History:], 0
	return &c
}

// A terminal and its copy share no memory that may change.
func TestCopySharesNothing(t *testing.T) {
	term := busy(1)
	a, b := make(places), make(places)
	a.walk(reflect.ValueOf(term), "Term")
	b.walk(reflect.ValueOf(term.Copy(1000)), "Term")
	for at, name := range a {
		if other, ok := b[at]; ok {
			t.Errorf("%s of the terminal is %s of the copy", name, other)
		}
	}
	if len(a) < 50 {
		t.Errorf("only %d pieces of memory were found", len(a))
	}
}

// places maps each piece of memory that may be written to its path.
type places map[unsafe.Pointer]string

func (p places) walk(v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.Pointer:
		switch v.Type().Elem().Name() {
		case "link", "charset", "uint32": // never change
			return
		}
		if v.IsNil() || p[v.UnsafePointer()] != "" {
			return
		}
		p[v.UnsafePointer()] = name
		p.walk(v.Elem(), name)
	case reflect.Struct:
		if f := v.FieldByName("shared"); f.IsValid() && f.Bool() { // shared memory is replaced before a change
			return
		}
		for i := range v.NumField() {
			p.walk(v.Field(i), name+"."+v.Type().Field(i).Name)
		}
	case reflect.Array:
		for i := range v.Len() {
			p.walk(v.Index(i), name)
		}
	case reflect.Slice:
		if v.Cap() > 0 {
			p[v.UnsafePointer()] = name
		}
		for i := range v.Len() {
			p.walk(v.Index(i), name)
		}
	case reflect.Map:
		if !v.IsNil() {
			p[v.UnsafePointer()] = name
		}
	}
}

// TestCopyUsedAtOnce checks that a terminal and its copies may be written at the same time, although they share
// styles that each of them sweeps.
func TestCopyUsedAtOnce(t *testing.T) {
	styles := func(blue int) (b []byte) {
		for i := range 10_000 {
			b = fmt.Appendf(b, "\x1b[38;2;%d;%d;%dmx", i>>8, i&255, blue)
		}
		return b
	}
	term, alone := busy(2), busy(2)
	for _, t := range []*vt.Term{term, alone} {
		t.Write(append([]byte("\x1b\\"), styles(0)...))
	}
	want := alone.State()
	var wg sync.WaitGroup
	for i := range 4 {
		c := term.Copy(1000)
		wg.Go(func() {
			if diff := vttest.Diff(c.State(), want); diff != "" {
				t.Error(diff)
			}
			c.Write(styles(1 + i))
			c.Resize(20, 5)
			c.Write(styles(0))
		})
	}
	term.Write(styles(5))
	alone.Write(styles(5))
	wg.Wait()
	if diff := vttest.Diff(term.State(), alone.State()); diff != "" {
		t.Error(diff)
	}
}
