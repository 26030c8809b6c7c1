package session

import (
	"maps"

	"holdfast/protocol"
)

// Relabel changes labels and leaves the others; an empty value takes one away. A
// session that has ended can be relabelled, too. Errors: those of
// protocol.ValidateLabels, for what it would have then; session_not_found.
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
		s.labels.Store(&labels)
		if err := s.newSavedSpec(); err != nil {
			s.labels.Store(&before)
			return err
		}
		s.note()
		info := s.info()
		s.hub.Publish(protocol.EventLabels, &info, nil)
		return nil
	})
}
