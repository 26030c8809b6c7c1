package web

import (
	"slices"
	"time"
)

// A stranger is a connection on TCP with a client that has shown neither ticket nor cookie nor token
// yet, possibly because its request has not arrived completely. Any program of any user of the
// machine can open such connections, so strangers may hold only a bounded share of the places.
//
// The oldest stranger makes room for the next one. An honest client identifies itself in its
// first message, so it is no stranger any more when many others have connected after it.

// maxStrangers is the largest number of strangers.
const maxStrangers = 128

// makeRoom closes the oldest stranger if another connection would exceed a limit, and waits until
// that stranger's place is free. It must be called before each accepted connection is counted.
func (h *Handler) makeRoom() {
	h.mu.Lock()
	var oldest *pendingConn
	if n := len(h.strangers); n >= h.maxStranger || n > 0 && h.quota.IsFull() {
		oldest = h.strangers[0]
		h.strangers = h.strangers[1:]
		if !h.isCrowded {
			h.isCrowded = true
			h.cfg.Log.Warn().Int("strangers", n).Int("connections", h.quota.Count()).Msg("too many web clients have not identified themselves; the oldest ones are closed")
		}
	} else if n < h.maxStranger/2 {
		h.isCrowded = false // the next crowding is logged again
	}
	h.mu.Unlock()
	if oldest == nil {
		return
	}
	oldest.end()
	select {
	case <-oldest.ended:
	case <-time.After(lastWait): // the new connection may be refused, because the place becomes free later
	}
}

// removeStranger must be called when a client has identified itself, when its connection has
// ended, and when the connection belongs to another process.
func (h *Handler) removeStranger(a *pendingConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeStrangerLocked(a)
}

// removeStrangerLocked does the work of removeStranger; h.mu must be held.
func (h *Handler) removeStrangerLocked(a *pendingConn) {
	if i := slices.Index(h.strangers, a); i >= 0 {
		h.strangers = slices.Delete(h.strangers, i, i+1)
	}
}
