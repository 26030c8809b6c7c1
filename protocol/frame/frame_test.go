package frame

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/internal/drift"
)

// got is a received frame.
type got struct {
	kind    Kind
	payload string
}

// readAll reads frames until an error. It continues after time-outs.
func readAll(r *Reader) ([]got, error) {
	var all []got
	for {
		kind, payload, err := r.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return all, err
		}
		all = append(all, got{kind, string(payload)})
	}
}

// model is a simple reader that has the whole input in one slice.
func model(in []byte, limit int) ([]got, error) {
	var all []got
	for {
		switch {
		case len(in) == 0:
			return all, io.EOF
		case len(in) < 4:
			return all, io.ErrUnexpectedEOF
		}
		n := int64(binary.BigEndian.Uint32(in))
		switch {
		case n == 0:
			return all, &protocol.Error{Code: protocol.CodeBadFrame}
		case n > int64(limit):
			return all, &protocol.Error{Code: protocol.CodeFrameTooLarge}
		case int64(len(in)) < 4+n:
			return all, io.ErrUnexpectedEOF
		}
		all = append(all, got{Kind(in[4]), string(in[5 : 4+n])})
		in = in[4+n:]
	}
}

var hi = []byte("hi\r\n")

// The encoding of each kind of frame must not change within version 1.
func TestGolden(t *testing.T) {
	tests := []struct {
		name string
		got  []byte
		want got
	}{
		{name: "control", got: Append(nil, Control, []byte(`{"type":"ok","request_id":"r-1"}`)),
			want: got{0, `{"type":"ok","request_id":"r-1"}`}},
		{name: "output", got: AppendData(nil, Output, 7, 258, hi),
			want: got{1, "\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x01\x02hi\r\n"}},
		{name: "input", got: AppendData(nil, Input, math.MaxUint32, 1<<40, []byte("\x03")),
			want: got{2, "\xff\xff\xff\xff\x00\x00\x01\x00\x00\x00\x00\x00\x03"}},
		{name: "snapshot", got: AppendData(nil, Snapshot, 1, 5120, []byte("\x1b[2J\x1b[H$ ")),
			want: got{3, "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x14\x00\x1b[2J\x1b[H$ "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := fmt.Sprintf("testdata/%s-v%d.hex", tt.name, protocol.Version)
			drift.Golden(t, path, hexLines(tt.got))
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			golden, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
			if err != nil {
				t.Fatal(err)
			}
			all, err := readAll(NewReader(bytes.NewReader(golden), Max))
			if err != io.EOF || !slices.Equal(all, []got{tt.want}) {
				t.Errorf("got %q and %v, want %q", all, err, tt.want)
			}
		})
	}
}

// hexLines writes 16 bytes per line.
func hexLines(b []byte) []byte {
	var out []byte
	for part := range slices.Chunk(b, 16) {
		out = fmt.Appendf(out, "% x\n", part)
	}
	return out
}

// Frames are length-prefixed, big-endian, and have a maximum length.
//
// demand: R8
func TestReader(t *testing.T) {
	bad, large := &protocol.Error{Code: protocol.CodeBadFrame}, &protocol.Error{Code: protocol.CodeFrameTooLarge}
	full := strings.Repeat("x", 99)
	tests := []struct {
		name string
		in   string
		want []got
		err  error
	}{
		{name: "nothing", err: io.EOF},
		{name: "one", in: "\x00\x00\x00\x03\x00{}", want: []got{{0, "{}"}}, err: io.EOF},
		{name: "no payload", in: "\x00\x00\x00\x01\x02", want: []got{{2, ""}}, err: io.EOF},
		{name: "two", in: "\x00\x00\x00\x02\x01a\x00\x00\x00\x02\x02b", want: []got{{1, "a"}, {2, "b"}}, err: io.EOF},
		{name: "unknown kind", in: "\x00\x00\x00\x02\xffa", want: []got{{255, "a"}}, err: io.EOF},
		{name: "at the limit", in: "\x00\x00\x00\x64\x01" + full, want: []got{{1, full}}, err: io.EOF},
		{name: "over the limit", in: "\x00\x00\x00\x65\x01" + full + "x", err: large},
		{name: "length 0", in: "\x00\x00\x00\x00\x00", err: bad},
		{name: "4 GiB", in: "\xff\xff\xff\xff\x00", err: large},
		{name: "good, then bad", in: "\x00\x00\x00\x02\x01a\x00\x00\x00\x00", want: []got{{1, "a"}}, err: bad},
		{name: "cut in the length", in: "\x00\x00", err: io.ErrUnexpectedEOF},
		{name: "cut before the kind", in: "\x00\x00\x00\x02", err: io.ErrUnexpectedEOF},
		{name: "cut in the payload", in: "\x00\x00\x00\x03\x01a", err: io.ErrUnexpectedEOF},
		{name: "little-endian", in: "\x02\x00\x00\x00\x01a", err: large},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(strings.NewReader(tt.in), 100)
			all, err := readAll(r)
			if !errors.Is(err, tt.err) || !slices.Equal(all, tt.want) {
				t.Errorf("got %q and %v, want %q and %v", all, err, tt.want, tt.err)
			}
			if _, _, again := r.Next(); again.Error() != err.Error() {
				t.Errorf("the first error is %v, the second %v", err, again)
			}
		})
	}
}

func TestSetMax(t *testing.T) {
	in := Append(Append(nil, Control, make([]byte, 10)), Control, make([]byte, 1000))
	r := NewReader(bytes.NewReader(in), 11)
	if _, _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	r.SetMax(1001)
	if _, payload, err := r.Next(); err != nil || len(payload) != 1000 {
		t.Errorf("got %d bytes and %v, want 1000", len(payload), err)
	}
}

// frames returns a stream of frames of different sizes.
func frames() (stream []byte, want []got) {
	for i, n := range []int{0, 1, 30, 4090, 4096, 9000, 2, 70000, 3} {
		stream = Append(stream, Kind(i%4), bytes.Repeat([]byte{byte(i)}, n))
	}
	want, _ = model(stream, Max)
	return stream, want
}

func TestSplitAnywhere(t *testing.T) {
	stream := AppendData(Append(nil, Control, []byte("{}")), Output, 7, 258, hi)
	want, _ := model(stream, Max)
	for i := range stream {
		src := io.MultiReader(bytes.NewReader(stream[:i]), bytes.NewReader(stream[i:]))
		if all, err := readAll(NewReader(src, Max)); err != io.EOF || !slices.Equal(all, want) {
			t.Errorf("split at %d: got %q and %v, want %q", i, all, err, want)
		}
	}
	long, want := frames()
	for name, src := range map[string]io.Reader{
		"one byte":        iotest.OneByteReader(bytes.NewReader(long)),
		"half":            iotest.HalfReader(bytes.NewReader(long)),
		"end with a read": iotest.DataErrReader(bytes.NewReader(long)),
	} {
		if all, err := readAll(NewReader(src, Max)); err != io.EOF || !slices.Equal(all, want) {
			t.Errorf("%s: got %d frames and %v, want %d", name, len(all), err, len(want))
		}
	}
}

// A Reader that has returned a time-out must continue at the same position.
func TestResumeAfterTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		stream, want := frames()
		go func() {
			defer func() { _ = theirs.Close() }()
			for part := range slices.Chunk(stream, 777) {
				time.Sleep(time.Second) // the clock of the bubble
				if _, err := theirs.Write(part); err != nil {
					t.Error(err)
				}
			}
		}()
		r := NewReader(ours, Max)
		var all []got
		timeouts := 0
		for {
			_ = ours.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // fails after the other end is closed
			kind, payload, err := r.Next()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				timeouts++
				continue
			}
			if err != nil {
				if err != io.EOF {
					t.Error(err)
				}
				break
			}
			all = append(all, got{kind, string(payload)})
		}
		if !slices.Equal(all, want) || timeouts < len(stream)/777 {
			t.Errorf("got %d frames after %d timeouts, want %d", len(all), timeouts, len(want))
		}
	})
}

func TestAnnouncedIsNotAllocated(t *testing.T) {
	tests := []struct {
		name  string
		in    []byte
		limit int
		err   error
	}{
		{name: "4 GiB, refused", in: []byte("\xff\xff\xff\xff\x00"), limit: Max, err: &protocol.Error{Code: protocol.CodeFrameTooLarge}},
		{name: "4 GiB, allowed", in: append([]byte("\xff\xff\xff\xff"), make([]byte, 10_000)...), limit: math.MaxInt, err: io.ErrUnexpectedEOF},
		{name: "1 MiB, nothing comes", in: []byte("\x00\x10\x00\x00"), limit: Max, err: io.ErrUnexpectedEOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := NewReader(bytes.NewReader(tt.in), tt.limit).Next()
			runtime.ReadMemStats(&after)
			if !errors.Is(err, tt.err) {
				t.Errorf("got %v, want %v", err, tt.err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
				t.Errorf("%d bytes were allocated for %d received bytes", n, len(tt.in))
			}
		})
	}
}

// The buffer of a large frame must be released when no data follows.
func TestBufferIsGivenBack(t *testing.T) {
	stream := Append(Append(nil, Control, make([]byte, Max-1)), Control, nil)
	r := NewReader(bytes.NewReader(stream), Max)
	for range 2 {
		if _, _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := r.Next(); err != io.EOF || len(r.buf.buf) != initialBuffer {
		t.Errorf("got a buffer of %d bytes and %v, want %d", len(r.buf.buf), err, initialBuffer)
	}
}

func TestRawAndBuffered(t *testing.T) {
	first, second := AppendData(nil, Output, 7, 258, hi), Append(nil, Control, []byte("{}"))
	r := NewReader(bytes.NewReader(append(slices.Clone(first), second...)), Max)
	raw, err := r.NextRaw()
	if err != nil || !bytes.Equal(raw, first) || !bytes.Equal(r.Buffered(), second) {
		t.Errorf("got % x, % x left and %v, want % x and % x", raw, r.Buffered(), err, first, second)
	}
}

func TestData(t *testing.T) {
	whole := AppendData(nil, Input, 7, 258, hi)
	inPlace := append(make([]byte, HeaderLen+DataHeadLen), hi...)
	PutDataHeader(inPlace, Input, 7, 258, len(hi))
	if !bytes.Equal(inPlace, whole) {
		t.Errorf("got % x, want % x", inPlace, whole)
	}
	attachment, offset, data, err := ParseData(whole[HeaderLen:])
	if err != nil || attachment != 7 || offset != 258 || !bytes.Equal(data, hi) {
		t.Errorf("got %d, %d, %q and %v", attachment, offset, data, err)
	}
	for n := range DataHeadLen {
		if _, _, _, err := ParseData(make([]byte, n)); protocol.CodeOf(err) != protocol.CodeBadFrame {
			t.Errorf("%d bytes: got %v, want bad_frame", n, err)
		}
	}
}

// A stuttering reader returns as many bytes at a time as cuts says, and a time-out for 0.
type stuttering struct {
	in      []byte
	cuts    []byte
	i       int
	timeout bool // the last read was a time-out
	given   int
}

func (s *stuttering) Read(p []byte) (int, error) {
	n := 1
	if len(s.cuts) > 0 {
		n = int(s.cuts[s.i%len(s.cuts)])
		s.i++
	}
	if n == 0 && !s.timeout {
		s.timeout = true
		return 0, os.ErrDeadlineExceeded
	}
	s.timeout = false
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n = copy(p, s.in[:min(max(n, 1), len(s.in))])
	s.in = s.in[n:]
	s.given += n
	return n, nil
}

// FuzzReader checks, for any input, pieces and time-outs, that Next does not panic, that the buffer is at
// most twice as large as the received input, and that the frames equal those of the model.
func FuzzReader(f *testing.F) {
	f.Add(Append(Append(nil, Control, make([]byte, 5000)), Input, nil), []byte{0, 255, 1})
	f.Add(AppendData(nil, Output, 7, 258, hi), []byte{1, 0})
	f.Add([]byte("\x00\x00\x00\x00"), []byte{})
	f.Add([]byte("\xff\xff\xff\xff"), []byte{3})
	f.Fuzz(func(t *testing.T, in, cuts []byte) {
		const limit = 10_000
		src := &stuttering{in: in, cuts: cuts}
		r := NewReader(src, limit)
		want, wantErr := model(in, limit)
		for i := 0; ; {
			kind, payload, err := r.Next()
			if n := max(initialBuffer, 2*src.given); len(r.buf.buf) > n {
				t.Fatalf("the buffer has %d bytes, %d were received", len(r.buf.buf), src.given)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				continue
			}
			if err != nil {
				if i != len(want) || !errors.Is(err, wantErr) {
					t.Fatalf("got %v after %d frames, want %v after %d", err, i, wantErr, len(want))
				}
				return
			}
			if i == len(want) || kind != want[i].kind || string(payload) != want[i].payload {
				t.Fatalf("frame %d: got %d %q, want %q", i, kind, payload, want[i:])
			}
			i++
		}
	})
}

// BenchmarkReader measures the reading of a frame, which must not allocate, and must take little longer than
// the copy.
func BenchmarkReader(b *testing.B) {
	for _, size := range []int{16, 4 << 10, MaxData} {
		wire := AppendData(nil, Output, 1, 0, make([]byte, size))
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			src := bytes.NewReader(wire)
			r := NewReader(src, Max)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				src.Reset(wire)
				if _, _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A Reader must continue with the bytes that another Reader has left, also within a frame.
func TestBegin(t *testing.T) {
	stream := AppendData(AppendData(nil, Input, 1, 0, []byte("one")), Input, 1, 3, bytes.Repeat([]byte("x"), 3*initialBuffer))
	for cut := range stream {
		r := NewReader(bytes.NewReader(stream[cut:]), Max)
		r.Begin(stream[:cut])
		var got []byte
		for range 2 {
			f, err := r.NextRaw()
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			got = append(got, f...)
		}
		if !bytes.Equal(got, stream) {
			t.Fatalf("cut at %d: got %d bytes of %d, or other bytes", cut, len(got), len(stream))
		}
	}
}

// Frames are split as the vectors tell, which are for clients in all languages.
func TestVectors(t *testing.T) {
	b, err := os.ReadFile("../testdata/client-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Frames []struct {
			Name   string
			Pieces []string
			Frames []struct {
				Kind    Kind
				Payload string
			}
			Error bool
		}
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors.Frames) == 0 {
		t.Fatal("there are no frames")
	}
	for _, v := range vectors.Frames {
		t.Run(v.Name, func(t *testing.T) {
			var pieces []io.Reader
			for _, p := range v.Pieces {
				raw, err := hex.DecodeString(p)
				if err != nil {
					t.Fatal(err)
				}
				pieces = append(pieces, bytes.NewReader(raw))
			}
			var want []got
			for _, f := range v.Frames {
				payload, err := hex.DecodeString(f.Payload)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, got{f.Kind, string(payload)})
			}
			all, err := readAll(NewReader(io.MultiReader(pieces...), Max))
			var e *protocol.Error
			if !slices.Equal(all, want) || errors.As(err, &e) != v.Error {
				t.Errorf("got %v and the error %v, want %v and an error: %v", all, err, want, v.Error)
			}
		})
	}
}
