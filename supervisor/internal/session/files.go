package session

import (
	"slices"

	"holdfast/protocol"
)

// Open files that a session may take at one time: in this process, in its keeper, and in the
// supervisor that adopts all sessions at once after this one has died. If these files do not
// fit below the limit of a process, another session is refused, because the sessions could not
// survive the supervisor's death.
const (
	// filesPerSession counts six files of the vault entry (terminal, ring, state, keyframe, the
	// journal's pipe and queue), two of its recording, two that report the child's end, one for a
	// message to systemd's store, two duplicates for a trial, and one in reserve.
	filesPerSession = 14
	// filesPerExited counts ring, state, keyframe, and two duplicates for a trial.
	filesPerExited = 5
	// filesReserved counts the files that belong to no session: sockets and their locks, links
	// of proxies, logs, the poller, programs and pipes of an upgrade.
	filesReserved = 64
)

// fileRoom returns limit_exceeded if the files of another session do not fit. If they fit without
// the oldest exited sessions, fileRoom returns those, which must be forgotten. The session that the
// other one replaces is not among them. mu must be held.
func (r *registry[S]) fileRoom(old S) (surplus []S, err error) {
	if r.bounds.files == 0 {
		return nil, nil
	}
	live := r.liveCount()
	room := r.bounds.files - filesReserved - filesPerSession*(live+1)
	if room < 0 && live == 0 {
		return nil, protocol.Errorf(protocol.CodeLimitExceeded, "the supervisor may open %d files, which is too few for a session; start it with a higher RLIMIT_NOFILE (ulimit -n, LimitNOFILE=)", r.bounds.files)
	}
	if room < 0 {
		return nil, protocol.Errorf(protocol.CodeLimitExceeded, "sessions that run: %d; another would not leave enough of the %d files that the supervisor may open for its successor to adopt them all; "+
			"end one, or start the supervisor with a higher RLIMIT_NOFILE (ulimit -n, LimitNOFILE=)", live, r.bounds.files)
	}
	others := slices.DeleteFunc(slices.Clone(r.exited), func(s S) bool { return s == old })
	return others[:min(len(others), max(0, len(r.exited)-room/filesPerExited))], nil
}
