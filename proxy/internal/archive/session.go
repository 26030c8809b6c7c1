package archive

import (
	"bytes"

	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/logging"
)

const (
	// A segment ends after so many bytes, or so long after its first byte. The rest of 5 s is for the put.
	segmentBytes = 4 << 20
	segmentTime  = 4 * time.Second
	// maxSegment is the limit for a segment that waits for the offset of its successor's keyframe.
	maxSegment = 2 * segmentBytes
	// keyframeTime is how long a segment waits for that offset, and for the keyframe itself.
	keyframeTime = time.Second
	stampEvery   = 100 * time.Millisecond
	tickEvery    = 250 * time.Millisecond
	attachEvery  = time.Second // the pause between two attempts to attach
	// stallTime is how long the attachment may stand still while the store does not answer. Then it is given
	// up until the store answers, because it keeps the output of a session that was forgotten in memory.
	stallTime = 30 * time.Second
	graceTime = 2 * time.Second // for the last segment when the recorder ends
	upgrading = time.Second     // how long a link may last after the supervisor has said that it is upgrading
)

var (
	errStalled   = errors.New("the store does not answer")
	errForgotten = errors.New("the session is gone")
)

// A keyframe is the state of the terminal at an offset.
type keyframe struct {
	offset  uint64
	size    protocol.Size
	data    []byte
	isShown bool
}

// A session is a session that is being recorded. Its fields belong to the goroutine of run, except for those of
// the uploader.
type session struct {
	r    *Recorder
	name Name
	info protocol.SessionInfo
	log  zerolog.Logger

	pos          uint64    // offset of the next byte of output
	cur          *Segment  // the segment that is being read
	began        time.Time // when the first byte of cur was read
	next         *keyframe // the keyframe of the next segment, which begins when its offset is reached
	nextSince    time.Time
	snapshotLeft int           // bytes of the snapshot that are still to come; they are the keyframe of cur
	snapshotFits bool          // in a segment; otherwise cur has no keyframe
	isBlind      bool          // no stored keyframe has come since output was missing, so that the screen cannot be shown
	detach       func()        // ends the attachment; nil: there is none
	isStalled    bool          // the attachment was ended, because the store does not answer
	stallTime    time.Duration // the constant stallTime, except in tests

	puts chan *Segment // to the uploader
	last string        // hash of the last segment that is stored; owned by the uploader while it runs
	lost bool          // a segment could not be stored before the recorder ended; as last
}

func newSession(r *Recorder, info *protocol.SessionInfo) *session {
	name := Name{r.Host, info.ID, info.Instance}
	return &session{r: r, name: name, info: *info, stallTime: stallTime, log: r.Log.With().Str(logging.Session, string(info.ID)).Str(logging.Instance, string(info.Instance)).Logger()}
}

// run records the session until it has ended or ctx is done.
func (s *session) run(ctx context.Context) {
	x, err := s.prepare(ctx)
	if errors.Is(err, ErrTorn) {
		s.log.Error().Err(err).Bool(logging.Security, true).Msg("session is not recorded, because its index in the store is not valid")
	}
	if err != nil || x.IsComplete {
		return
	}
	s.log.Info().Uint64(logging.Offset, s.pos).Msg("session is being recorded")
	s.puts = make(chan *Segment)
	uploaded := make(chan struct{})
	go func() {
		defer close(uploaded)
		s.upload(ctx)
	}()
	s.cur = s.firstSegment(ctx)
	exit, err := s.read(ctx)
	if exit != nil && s.isBlind {
		s.showEnd(ctx)
	}
	s.cut()
	close(s.puts)
	<-uploaded
	switch {
	case exit != nil && !s.lost:
		x.IsComplete, x.End, x.Last, x.ExitedAt, x.ExitCode = true, s.pos, s.last, exit.ExitedAt, &exit.ExitCode
		var torn error
		err := s.r.persist(ctx, func(ctx context.Context) error {
			err := s.complete(ctx, x)
			if errors.Is(err, ErrTorn) {
				torn, err = err, nil
			}
			return err
		})
		switch {
		case torn != nil:
			s.log.Error().Err(torn).Bool(logging.Security, true).Msg("recording has all output, but stays open, because its index in the store is not valid")
		case err == nil:
			s.log.Info().Uint64(logging.Offset, s.pos).Msg("recording is complete")
		}
	case ctx.Err() == nil:
		s.log.Warn().Err(err).Uint64(logging.Offset, s.pos).Msg("recording ends before the session")
	}
}

// showEnd lets a segment without output follow, whose keyframe is the last screen.
func (s *session) showEnd(ctx context.Context) {
	if k, err := s.askKeyframe(ctx, nil); err == nil && k.offset == s.pos {
		s.cutAt(k)
	}
}

// complete stores the last index. Old segments may have been removed since the recording began. An index that is not
// valid stays: its content may be of use, and verify must name it.
//
// Errors: ErrTorn if the index is not valid; those of the store.
func (s *session) complete(ctx context.Context, x *Index) error {
	s.r.indexes.Lock()
	defer s.r.indexes.Unlock()
	stored, err := readIndex(ctx, s.r.store, s.name)
	switch {
	case err == nil:
		x.RemovedTo = stored.RemovedTo
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return replaceIndex(ctx, s.r.store, s.name, x)
}

// prepare finds the end of the stored segments, and creates the index if there is none.
//
// Errors: ErrTorn if the index is not valid; ctx's.
func (s *session) prepare(ctx context.Context) (x *Index, torn error) {
	err := s.r.persist(ctx, func(ctx context.Context) (err error) {
		x, err = readIndex(ctx, s.r.store, s.name)
		if errors.Is(err, fs.ErrNotExist) {
			x = newIndex(s.name, &s.info)
			err = replaceIndex(ctx, s.r.store, s.name, x)
		}
		if errors.Is(err, ErrTorn) {
			torn = err
			return nil
		}
		if err != nil {
			return err
		}
		s.pos = x.RemovedTo
		var last string
		for o, err := range s.r.store.List(ctx, s.name.prefix()) {
			if err != nil {
				return err
			}
			if k, ok := parseKey(o.Key); ok && !k.isIndex && k.end >= s.pos {
				s.pos, last = k.end, o.Key
			}
		}
		if last == "" {
			return nil
		}
		object, err := s.r.store.Get(ctx, last, maxObject)
		s.last = hashOf(object)
		return err
	})
	return x, errors.Join(err, torn)
}

// firstSegment returns an empty segment at the present position, with a keyframe if the supervisor still has
// the screen at this offset.
func (s *session) firstSegment(ctx context.Context) *Segment {
	seg := &Segment{Name: s.name, Start: s.pos, Size: s.info.Size.Normalize()}
	if k, err := s.askKeyframe(ctx, &protocol.Moment{Offset: &s.pos}); err == nil && k.offset == s.pos {
		seg.Size, seg.Keyframe, seg.IsShown = k.size, k.data, true
	}
	return seg
}

// askKeyframe returns the screen of the session at a moment; nil is the present one.
func (s *session) askKeyframe(ctx context.Context, at *protocol.Moment) (*keyframe, error) {
	ctx, cancel := context.WithTimeout(ctx, keyframeTime)
	defer cancel()
	// A terminal that grows shows lines that were above its screen.
	spec := protocol.ScreenSpec{SessionID: s.name.ID, Format: protocol.ScreenState, Scrollback: protocol.DefaultHistory, At: at}
	reply, err := s.r.Link.Call(ctx, wire.Screen{ScreenSpec: spec, Instance: s.name.Instance})
	if err != nil {
		return nil, err
	}
	c, ok := reply.(*wire.ScreenContent)
	if !ok || c.Inexact || len(c.State) > maxKeyframe {
		return nil, errors.New("no keyframe")
	}
	return &keyframe{c.Offset, protocol.Size{Cols: c.Cols, Rows: c.Rows}.Normalize(), c.State, true}, nil
}

// read reads the output until the session has ended. It attaches again if the link breaks.
func (s *session) read(ctx context.Context) (*protocol.ExitRecord, error) {
	for {
		exit, err := s.readOnce(ctx)
		if exit != nil || ctx.Err() != nil {
			return exit, ctx.Err()
		}
		switch protocol.CodeOf(err) {
		case protocol.CodeSessionNotFound, protocol.CodeSessionExited, protocol.CodeInstanceMismatch:
			return nil, fmt.Errorf("%w: %w", errForgotten, err)
		case protocol.CodeInvalidArgument:
			return nil, fmt.Errorf("the store has more output than the session: %w", err)
		}
		if pause(ctx, attachEvery) != nil {
			return nil, ctx.Err()
		}
	}
}

// readOnce attaches at the present position, and reads until the session has ended or the attachment breaks.
func (s *session) readOnce(ctx context.Context) (*protocol.ExitRecord, error) {
	spec := protocol.AttachSpec{
		SessionID: s.name.ID, Mode: protocol.ModeReadOnly, Mask: true,
		Resume: &protocol.Resume{Instance: s.name.Instance, Offset: s.pos},
	}
	st, reply, err := s.r.Link.Open(ctx, wire.Attach{AttachSpec: spec, Shadow: true}) // a shadow is no viewer
	if err != nil {
		return nil, err
	}
	defer st.Abort()
	defer context.AfterFunc(ctx, st.Abort)()
	s.detach = st.Abort
	defer func() { s.detach, s.isStalled = nil, false }()
	info, ok := reply.(*wire.Attached)
	if !ok {
		return nil, fmt.Errorf("attach answered by %s", reply.MessageType())
	}
	if s.snapshotLeft > 0 { // the attachment before this one broke within its snapshot
		s.snapshotLeft, s.cur.Keyframe = 0, nil
	}
	if info.Offset != s.pos || info.SnapshotBytes > 0 {
		s.skip(info.Offset, info.SnapshotBytes)
	}
	frames, ended, done := make(chan []byte), make(chan error, 1), make(chan struct{})
	defer close(done)
	go func() { ended <- forward(st, frames, done) }()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case raw := <-frames:
			exit, err := s.handle(ctx, st, raw)
			if exit != nil || err != nil {
				return exit, err
			}
		case err := <-ended:
			return nil, err
		case now := <-tick.C:
			s.tick(ctx, now)
		}
		if s.isStalled {
			return nil, errStalled
		}
	}
}

// forward sends copies of the frames of a stream to frames until the stream or done ends.
func forward(st *link.Stream, frames chan<- []byte, done <-chan struct{}) error {
	for {
		raw, err := st.Next()
		if err != nil {
			return err
		}
		select {
		case frames <- bytes.Clone(raw):
		case <-done:
			return nil
		}
	}
}

// handle handles one frame. It returns the exit record if the session has ended.
func (s *session) handle(ctx context.Context, st *link.Stream, raw []byte) (*protocol.ExitRecord, error) {
	payload := raw[frame.HeaderLen:]
	switch frame.Kind(raw[4]) {
	case frame.Output:
		_, offset, data, err := frame.ParseData(payload)
		if err != nil {
			return nil, err
		}
		if offset != s.pos {
			return nil, fmt.Errorf("output at offset %d, want %d", offset, s.pos)
		}
		return nil, s.add(ctx, data)
	case frame.Snapshot:
		_, _, data, err := frame.ParseData(payload)
		if err != nil {
			return nil, err
		}
		n := min(len(data), s.snapshotLeft)
		s.snapshotLeft -= n
		if n > 0 && s.snapshotFits {
			s.cur.Keyframe = append(s.cur.Keyframe, data[:n]...)
			s.cur.IsShown = s.snapshotLeft == 0
		}
	case frame.Control:
		m, _, err := wire.Messages.Decode(payload)
		if protocol.CodeOf(err) == protocol.CodeUnsupported {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return s.handleMessage(st, m), nil
	}
	return nil, nil
}

// handleMessage handles a control message. It returns the exit record if the session has ended.
func (s *session) handleMessage(st *link.Stream, m protocol.Message) *protocol.ExitRecord {
	switch m := m.(type) {
	case *wire.Resized:
		size := protocol.Size{Cols: m.Cols, Rows: m.Rows}.Normalize()
		switch {
		case len(s.cur.Output) == 0 && len(s.cur.Keyframe) == 0:
			s.cur.Size = size
		case size != s.cur.endSize() && len(s.cur.Sizes) < maxStamps:
			s.cur.Sizes = append(s.cur.Sizes, protocol.PastSize{Offset: s.pos, Size: size})
		}
	case *wire.Resync:
		s.skip(m.Offset, m.SnapshotBytes)
	case *wire.Exited:
		return &m.Exit
	case *wire.Error:
		if m.Code == protocol.CodeUpgrading {
			time.AfterFunc(upgrading, st.Abort) // if the supervisor stays and no other link comes, attach again over the present one
		}
	}
	return nil
}

// skip ends the segment, and begins another one at an offset. The output before it is missing. A snapshot
// of n bytes, which follows, is its keyframe.
func (s *session) skip(offset uint64, n int) {
	size := s.cur.endSize()
	s.cut()
	seg := &Segment{Name: s.name, Start: offset, Size: size, IsShown: false}
	if offset > s.pos {
		seg.Missing = offset - s.pos
		s.r.stats.missed.Add(seg.Missing)
		s.log.Warn().Uint64(logging.Offset, s.pos).Uint64(logging.Missed, seg.Missing).Msg("output could not be recorded, because the ring has overwritten it")
	}
	s.cur, s.pos, s.snapshotLeft, s.snapshotFits, s.next, s.began, s.isBlind = seg, offset, n, n <= maxKeyframe, nil, time.Now(), true
}

// stall ends the attachment, because the store has not answered for stallTime: the supervisor keeps the ring of a session
// that was forgotten until its attachments have ended. The caller continues to wait for the store, and readOnce then returns.
func (s *session) stall() {
	if s.detach != nil && !s.isStalled {
		s.isStalled = true
		s.detach()
	}
}

// add adds output to the segment. If too much output of all sessions waits to be stored, it waits.
func (s *session) add(ctx context.Context, data []byte) error {
	began := time.Now()
	for isFirst := true; !s.r.buffer.take(len(data)); isFirst = false {
		if isFirst {
			s.cut() // so that it does not hold the space for which others wait
		}
		if time.Since(began) >= s.stallTime {
			s.stall()
		}
		if err := pause(ctx, tickEvery); err != nil {
			return err
		}
	}
	now := time.Now()
	if len(s.cur.Output) == 0 {
		s.began = now
	}
	if n := len(s.cur.Times); n == 0 || now.Sub(s.cur.Times[n-1].At) >= stampEvery && n < maxStamps {
		s.cur.Times = append(s.cur.Times, protocol.PastTime{Offset: s.pos, At: now.Round(0).UTC()})
	}
	s.cur.Output = append(s.cur.Output, data...)
	s.pos += uint64(len(data))
	switch n := len(s.cur.Output); {
	case s.next != nil && s.pos >= s.next.offset:
		s.cutAt(s.next)
	case n >= maxSegment:
		s.cut()
	case n >= segmentBytes && s.next == nil:
		s.endSegment(ctx, now)
	}
	return nil
}

// tick ends the segment if its time has come.
func (s *session) tick(ctx context.Context, now time.Time) {
	switch {
	case !s.hasContent() || s.snapshotLeft > 0:
	case s.next != nil:
		if now.Sub(s.nextSince) >= keyframeTime {
			s.cut()
		}
	case now.Sub(s.began) >= segmentTime:
		s.endSegment(ctx, now)
	}
}

// endSegment lets the segment end where its successor has a keyframe, or at the present position if there is
// none.
func (s *session) endSegment(ctx context.Context, now time.Time) {
	k, err := s.askKeyframe(ctx, nil)
	switch {
	case err != nil || k.offset <= s.cur.Start:
		s.cut()
	case k.offset <= s.pos:
		s.cutAt(k)
	default:
		s.next, s.nextSince = k, now
	}
}

// cut ends the segment at the present position. The next one has no keyframe.
func (s *session) cut() {
	if s.cur == nil || !s.hasContent() {
		return
	}
	s.next = nil
	s.cutAt(&keyframe{offset: s.pos})
}

// hasContent reports whether the segment must be stored: it has output, or its keyframe is the first one since output was
// missing.
func (s *session) hasContent() bool {
	return len(s.cur.Output) > 0 || s.cur.Missing > 0 || s.isBlind && s.cur.IsShown
}

// cutAt ends the segment at the offset of a keyframe, with which the next one begins.
func (s *session) cutAt(k *keyframe) {
	isStored := s.hasContent()
	whole, left := s.cur.split(k.offset, *k)
	s.cur, s.next = left, nil
	if !isStored {
		return
	}
	s.isBlind = s.isBlind && !whole.IsShown
	if len(left.Output) > 0 {
		s.began = time.Now()
	}
	stall := time.NewTimer(s.stallTime)
	defer stall.Stop()
	select {
	case s.puts <- whole:
		return
	case <-stall.C:
		s.stall()
	}
	s.puts <- whole // the uploader receives until puts is closed
}

// upload stores segments in their order until puts is closed. After ctx is done, it tries each once more, and
// stores no segment behind one that could not be stored.
func (s *session) upload(ctx context.Context) {
	for seg := range s.puts {
		if !s.lost {
			err := s.store(ctx, seg)
			if err != nil {
				grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
				err = s.put(grace, seg)
				cancel()
			}
			if err == nil {
				s.r.stats.bytes.Add(uint64(len(seg.Output)))
			}
			s.lost = err != nil
		}
		s.r.buffer.give(len(seg.Output))
	}
}

// store stores a segment; it tries until ctx is done.
func (s *session) store(ctx context.Context, seg *Segment) error {
	return s.r.persist(ctx, func(ctx context.Context) error { return s.put(ctx, seg) })
}

// put stores a segment once. If there is such an object already, an earlier attempt has stored it, or a process
// that has died since.
func (s *session) put(ctx context.Context, seg *Segment) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	seg.Previous = s.last
	object, err := s.r.keys.seal(seg.Encode())
	if err != nil {
		return err
	}
	key := s.name.segmentKey(seg.Start, seg.End(), s.r.keys != nil)
	err = s.r.store.Put(ctx, key, object)
	if errors.Is(err, ErrExists) {
		if object, err = s.r.store.Get(ctx, key, maxObject); err != nil {
			return err
		}
		stored, err := openSegment(object, key, s.r.keys)
		if err != nil || stored.Name != s.name || !bytes.Equal(stored.Output, seg.Output) {
			s.log.Error().Err(err).Str(logging.Path, key).Bool(logging.Security, true).Msg("the store has another object of this name; this part of the recording is not stored")
		}
	} else if err != nil {
		return err
	}
	s.last = hashOf(object)
	return nil
}
