package apiserver

import (
	"fmt"

	"holdfast/protocol"
)

// Limits of the connections that the proxy accepts on a socket of this user.
const (
	MaxConns      = 2048 // connections, including those that have not sent a hello yet
	MaxConnsOfOne = 1536 // connections of one process, so that other processes can still connect
)

// A Quota counts connections and limits them: all of them, and those of each process. The process
// id 0 stands for all processes whose id is unknown. The owner of a Quota must guard it.
type Quota struct {
	Max      int // of all connections
	MaxOfOne int // of one process
	all      int
	byPID    map[int]int
}

// Check returns limit_exceeded if the process may have no other connection.
func (q *Quota) Check(pid int) error {
	reason := ""
	if q.IsFull() {
		reason = fmt.Sprintf("the proxy has %d connections, which is the limit: close some of them, or try again later", q.all)
	} else if n := q.byPID[pid]; n >= q.MaxOfOne {
		reason = fmt.Sprintf("this process already has %d connections, which is the limit: close some of them", n)
	}
	if reason == "" {
		return nil
	}
	return &protocol.Error{Code: protocol.CodeLimitExceeded, Message: reason, Retryable: true, RetryAfterMS: 1000}
}

// IsFull reports whether no process may have another connection.
func (q *Quota) IsFull() bool { return q.all >= q.Max }

// Add counts a connection, even if it exceeds a limit.
func (q *Quota) Add(pid int) {
	if q.byPID == nil {
		q.byPID = make(map[int]int)
	}
	q.all++
	q.byPID[pid]++
}

// Remove reverses Add.
func (q *Quota) Remove(pid int) {
	q.all--
	if q.byPID[pid]--; q.byPID[pid] == 0 {
		delete(q.byPID, pid)
	}
}

// Count returns the number of connections.
func (q *Quota) Count() int { return q.all }
