package pty

// openHandle returns a handle for a process of a scan, or nil if the process has ended since.
func openHandle(q proc) handle {
	h := byStart{q.identity()}
	if h.hasEnded() {
		return nil
	}
	return h
}
