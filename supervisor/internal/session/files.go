package session

import (
	"fmt"

	"holdfast/protocol"
)

// Open files that a session may take at one time, of this process, of its keeper, and of the
// supervisor that adopts all sessions at once when this one has died. A session is
// refused before there is no room for that: without it a death would not be survived.
const (
	// filesPerSession: six of the record (terminal, ring, state, keyframe, the journal's pipe and queue),
	// two by which the child's end is seen, one for what systemd's store is told, two duplicates
	// while a program is tried, and one more.
	filesPerSession = 12
	// filesPerExited: ring, state, keyframe, and two while a program is tried.
	filesPerExited = 5
	// filesReserved is for all that is no session's: sockets and their locks, links of proxies, logs, the poller,
	// programs and pipes of an upgrade.
	filesReserved = 64
)

// makeFileRoom returns limit_exceeded if another session's files would not fit. If they do
// without the oldest exit records, those are forgotten. mu is held.
func (t *Table) makeFileRoom() error {
	if t.cfg.Files == 0 {
		return nil
	}
	live := len(t.sessions) - len(t.exited) + len(t.opening)
	room := t.cfg.Files - filesReserved - filesPerSession*(live+1)
	if room < 0 {
		return protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf(
			"%d sessions are running, and another would not leave enough of the %d files that the supervisor may open for its successor to adopt them all; "+
				"end one, or start the supervisor with a higher RLIMIT_NOFILE (ulimit -n, LimitNOFILE=)", live, t.cfg.Files))
	}
	for _, e := range t.exited[:max(0, len(t.exited)-room/filesPerExited)] {
		go t.expire(e.id, e.instance) // not here: it needs e's loop
	}
	return nil
}
