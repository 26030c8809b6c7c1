package pty

// openHandle returns nil if the process has ended since it was scanned.
func openHandle(q proc) handle {
	h := byStart{q.identity()}
	if h.gone() {
		return nil
	}
	return h
}
