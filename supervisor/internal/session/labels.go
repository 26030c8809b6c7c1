package session

import (
	"maps"
	"sync/atomic"

	"holdfast/protocol"
)

// labels are the labels of a session. Any goroutine may call the methods.
type labels struct {
	*identity
	present atomic.Pointer[map[string]string] // loop replaces the map and never changes it
}

// Labels returns a map that never changes, because Relabel replaces it.
func (l *labels) Labels() map[string]string { return *l.present.Load() }

// ShownLabels returns the labels without secrets.
func (l *labels) ShownLabels() map[string]string { return maskValues(l.Labels(), l.masker) }

// Relabel sets the labels in change and leaves all others; an empty value removes a label. It
// also works on a session that has exited.
//
// Errors: those of protocol.ValidateLabels for the resulting labels; session_not_found; busy.
func (s *Session) Relabel(change map[string]string) error {
	return s.request(func() error {
		before := s.Labels()
		labels := maps.Clone(before)
		if labels == nil {
			labels = make(map[string]string)
		}
		for key, value := range change {
			if labels[key] = value; value == "" {
				delete(labels, key)
			}
		}
		if err := protocol.ValidateLabels(labels); err != nil {
			return err
		}
		if maps.Equal(labels, before) {
			return nil
		}
		s.labels.present.Store(&labels)
		if err := s.newSavedSpec(); err != nil {
			s.labels.present.Store(&before)
			return err
		}
		s.noteChange()
		s.publishEvent(protocol.EventLabels)
		if s.isLost() && !s.recording.isLocked { // nothing but the recording outlives this supervisor
			s.recording.storeLabels(s.ShownLabels(), *s.cage.limits.Load())
		}
		return nil
	})
}
