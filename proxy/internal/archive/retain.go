package archive

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"holdfast/shared/machine"
)

const (
	retainEvery = 10 * time.Minute
	draftAge    = time.Hour // an incomplete file of this age belongs to a process that was killed
)

// retain deletes old segments of this host from time to time, until ctx is done.
func (r *Recorder) retain(ctx context.Context) {
	clock := machine.AgeClock{Path: r.Clock}
	if d, ok := r.store.(*Dir); ok {
		clock.Data = filepath.Join(d.path, r.Host)
	}
	for {
		r.indexes.Lock()
		err := r.Config.Retain(ctx, r.store, r.Host, clock.Time())
		r.indexes.Unlock()
		if err != nil && ctx.Err() == nil {
			r.Log.Warn().Err(err).Msg("old recordings cannot be deleted; the recorder tries again")
		}
		if d, ok := r.store.(*Dir); ok {
			_ = d.sweepDrafts(r.Host, time.Now().Add(-draftAge)) // a failure only leaves files that take space
		}
		if pause(ctx, retainEvery) != nil {
			return
		}
	}
}

// A stored is a segment in the listing of all recordings of a host.
type stored struct {
	segmentObject
	of *contents
}

// Retain deletes the segments of a host that are too old, and the oldest ones beyond the limit of bytes. The index is
// changed first, so that a deleted segment never looks lost. It is deleted with the last segment of a recording that is
// complete.
func (c *Config) Retain(ctx context.Context, s Store, host string, now time.Time) error {
	var all []stored
	var total int64
	for recording, err := range byRecording(ctx, s, host+"/") {
		if err != nil {
			return err
		}
		for _, o := range recording.segments {
			all = append(all, stored{o, recording})
			total += o.Bytes
		}
	}
	slices.SortStableFunc(all, func(a, b stored) int { return a.Modified.Compare(b.Modified) })
	removed := map[*contents]int{} // how many segments, from the first one on
	for _, o := range all {
		isOld := c.Age > 0 && now.Sub(o.Modified) > c.Age
		if !isOld && (c.Bytes <= 0 || total <= c.Bytes) {
			break
		}
		n := removed[o.of]
		if o.of.segments[n].Key != o.Key { // it is not the first one: its clock was wrong, or two overlap
			continue
		}
		removed[o.of] = n + 1
		total -= o.Bytes
	}
	var errs []error
	for recording, n := range removed {
		errs = append(errs, removeSegments(ctx, s, recording, n))
	}
	return errors.Join(errs...)
}

// removeSegments deletes the first n segments of a recording, and the recording itself if none is left and it is
// complete.
func removeSegments(ctx context.Context, s Store, c *contents, n int) error {
	x, err := readIndex(ctx, s, c.name)
	isTorn := errors.Is(err, ErrTorn) // the limits hold for the segments nevertheless
	if err != nil && !isTorn && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if x != nil {
		x.RemovedTo = max(x.RemovedTo, c.segments[n-1].end)
		if err := replaceIndex(ctx, s, c.name, x); err != nil {
			return err
		}
	}
	for _, o := range c.segments[:n] {
		if err := s.Delete(ctx, o.Key); err != nil {
			return err
		}
	}
	if n == len(c.segments) && !isTorn && (x == nil || x.IsComplete) {
		return s.Delete(ctx, c.name.indexKey())
	}
	return nil
}
