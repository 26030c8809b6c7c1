//go:build linux || darwin

package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// manifest is all that a keeper passes to the next image of itself. Like the
// protocol it only ever grows.
type manifest struct {
	Version    int                `json:"version"`
	Records    map[string]*record `json:"records"` // descriptors by number
	Exits      []exit             `json:"exits,omitempty"`
	Starts     int                `json:"starts"`
	Last       string             `json:"last,omitempty"`
	Status     uint32             `json:"status,omitempty"`
	Supervisor heir               `json:"supervisor"`
	Good       int                `json:"good,omitempty"`   // descriptor of the last good program
	Answer     uint64             `json:"answer,omitempty"` // seq of the exec
}

// heir is the supervisor that goes on.
type heir struct {
	PID    int    `json:"pid"`
	Socket int    `json:"socket"`
	Ready  bool   `json:"ready,omitempty"`
	Quit   bool   `json:"quit,omitempty"`
	Unsent []byte `json:"unsent,omitempty"` // what is to be written before anything else
	Untold []int  `json:"untold,omitempty"` // pids
}

// snapshot is what goes on, with a descriptor's number each.
func (k *keeper) snapshot(c *child, seq uint64) manifest {
	s := heir{PID: c.pid, Socket: c.conn.FD(), Ready: c.ready, Quit: c.quit, Untold: c.untold}
	for _, frame := range c.out {
		s.Unsent = append(s.Unsent, frame...)
	}
	return manifest{Version, k.records, k.inOrder(), k.starts, k.last, k.status, s, k.good, seq}
}

func (m *manifest) fds() []int {
	fds := []int{m.Supervisor.Socket}
	if m.Good > 0 {
		fds = append(fds, m.Good)
	}
	for _, r := range m.Records {
		fds = append(fds, r.FDs...)
	}
	return fds
}

// save returns a file in memory, close-on-exec.
func (m *manifest) save() (*os.File, error) {
	f, err := memoryFile()
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if err := json.NewEncoder(f).Encode(m); err != nil {
		f.Close()
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return f, nil
}

func load(fd int) (m manifest, err error) {
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "manifest")
	defer f.Close()
	err = json.NewDecoder(io.NewSectionReader(f, 0, 1<<40)).Decode(&m)
	if err == nil && m.Version != Version {
		err = fmt.Errorf("version %d", m.Version)
	}
	if err == nil && (m.Supervisor.PID <= 0 || m.Supervisor.Socket <= 0) {
		err = errors.New("no supervisor")
	}
	if err != nil {
		err = fmt.Errorf("manifest: %w", err)
	}
	return m, err
}

// resume goes on where the image before this one stopped, with one answer more.
func (k *keeper) resume(fd int) error {
	nameProcess()
	m, err := load(fd)
	if err != nil {
		return err
	}
	for _, fd := range m.fds() {
		unix.CloseOnExec(fd)
	}
	conn, err := NewConn(m.Supervisor.Socket)
	if err != nil {
		return err
	}
	s := m.Supervisor
	c := &child{pid: s.PID, conn: conn, ready: s.Ready, quit: s.Quit, untold: s.Untold, done: make(chan struct{})}
	if len(s.Unsent) > 0 {
		c.out = append(c.out, s.Unsent)
	}
	if m.Answer != 0 {
		frame, _ := Message{Op: OpOK, Seq: m.Answer}.Frame()
		c.out = append(c.out, frame)
	}
	k.adopt(m, c)
	k.log("goes on as a new program: supervisor %d, %d records", c.pid, len(k.records))
	go k.talk(c, false)
	return nil
}

func (k *keeper) adopt(m manifest, c *child) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, r := range m.Records {
		k.records[id] = r
		k.meta += len(r.Meta)
		if r.PID != 0 {
			k.named[r.PID]++
		}
	}
	for _, e := range m.Exits {
		k.exits[e.PID] = e
	}
	k.child, k.starts, k.last, k.status = c, m.Starts, m.Last, m.Status
	k.good, k.lived = m.Good, true // what held records was ready, or is as good
	k.forget(time.Now())
}

// inherited takes a descriptor's number out of the environment; 0 is none.
func inherited(name string) int {
	fd, _ := strconv.Atoi(os.Getenv(name))
	os.Unsetenv(name)
	return fd
}
