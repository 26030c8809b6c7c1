package linkclient

import (
	"testing"

	"holdfast/protocol/frame"
)

func TestTypist(t *testing.T) {
	in := NewTypist(nil, 100)
	in.Add(make([]byte, 10))
	if f := in.next(1); len(f) != frame.HeaderLen+frame.DataHeadLen+10 {
		t.Errorf("a frame of %d bytes", len(f))
	}
	in.accepted(104)
	in.accepted(102)
	if at, waiting := in.state(); at != 104 || !waiting || in.next(1) != nil {
		t.Errorf("accepted %d, waiting %v", at, waiting)
	}
	in.resume(105, true)
	if in.next(1) != nil {
		t.Error("sent again at once, although the queue is full")
	}
	in.retry()
	if _, offset, p, err := frame.ParseData(in.next(1)[frame.HeaderLen:]); err != nil || offset != 105 || len(p) != 5 {
		t.Errorf("the repetition has %d bytes at %d, %v", len(p), offset, err)
	}
	in.accepted(110)
	if at, waiting := in.state(); at != 110 || waiting {
		t.Errorf("accepted %d, waiting %v", at, waiting)
	}
	for sent := 0; sent < sendWindow; sent += frame.MaxData {
		in.Add(make([]byte, frame.MaxData+1))
		in.next(1)
	}
	if in.next(1) != nil {
		t.Error("more than the window was sent")
	}
	if n := in.Add(make([]byte, 2*typingWindow)); n >= typingWindow {
		t.Errorf("accepted %d bytes", n)
	}
}

// If the supervisor has forgotten a writer, its offsets begin anew. Accepted input is not sent again, and the
// remainder is sent from offset 0.
func TestTypistForgotten(t *testing.T) {
	in := NewTypist(nil, 0)
	in.Add([]byte("before"))
	in.next(1)
	in.accepted(6)
	in.Add([]byte("after"))
	in.next(1)
	in.resume(0, false)
	if _, offset, p, err := frame.ParseData(in.next(1)[frame.HeaderLen:]); err != nil || offset != 0 || string(p) != "after" {
		t.Errorf("sent %q at %d, %v; want after at 0", p, offset, err)
	}
}
