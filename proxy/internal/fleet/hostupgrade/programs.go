package hostupgrade

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"holdfast/shared/machine"
)

// The programs of a release, and the file that tells of which rollout the copies are.
const (
	proxyName      = "proxy"
	supervisorName = "supervisor"
	keptName       = "kept.json"
)

type sum [sha256.Size]byte

// sums identify the two programs of a release by their content, because two programs may have the same
// version.
type sums struct{ supervisor, proxy sum }

// text returns one sum for both.
func (s sums) text() string {
	both := sha256.Sum256(append(s.supervisor[:], s.proxy[:]...))
	return hex.EncodeToString(both[:])
}

// sumsOf returns the sums of the programs in a directory.
func sumsOf(dir string) (s sums, err error) {
	s.supervisor, err = sumOf(filepath.Join(dir, supervisorName))
	if err == nil {
		s.proxy, err = sumOf(filepath.Join(dir, proxyName))
	}
	return s, err
}

func sumOf(path string) (s sum, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return s, err
	}
	return sum(h.Sum(nil)), nil
}

// programOf returns a path with which the program of a process can be read, also if its file was replaced.
func programOf(pid int) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("a client of a gate can upgrade hosts with Linux, and not with %s", runtime.GOOS)
	}
	return fmt.Sprintf("/proc/%d/exe", pid), nil
}

// A kept tells which programs are kept.
type kept struct {
	ID string `json:"id"` // of the rollout before which they ran
}

// keep copies the programs that run, and notes that they are those before a rollout. If they are kept
// already, because the agent was started again during the rollout, keep does not copy: the programs that
// run now may be the new ones.
func (u *Upgrader) keep(id string, running state) error {
	if k, err := u.readKept(); err == nil && k.ID == id {
		return nil
	}
	if err := os.MkdirAll(u.o.Dir, 0o700); err != nil {
		return err
	}
	note := filepath.Join(u.o.Dir, keptName)
	if err := os.Remove(note); err != nil && !errors.Is(err, os.ErrNotExist) { // first, so that the note never tells of other programs
		return err
	}
	for name, pid := range map[string]int{supervisorName: running.Supervisor.PID, proxyName: running.Proxy.PID} {
		path, err := programOf(pid)
		if err == nil {
			err = copyFile(filepath.Join(u.o.Dir, name), path)
		}
		if err != nil {
			return err
		}
	}
	b, err := json.Marshal(kept{ID: id})
	if err != nil {
		return err
	}
	return machine.ReplaceFile(note, bytes.NewReader(b), 0o600)
}

// errNotUpgraded tells that no apply of a rollout has begun on this host.
var errNotUpgraded = errors.New("this host was not upgraded by this rollout")

// kept returns the sums of the programs before a rollout.
func (u *Upgrader) kept(id string) (sums, error) {
	k, err := u.readKept()
	if errors.Is(err, os.ErrNotExist) || err == nil && k.ID != id {
		err = errNotUpgraded
	}
	if err != nil {
		return sums{}, fmt.Errorf("programs from before: %w", err)
	}
	return sumsOf(u.o.Dir)
}

func (u *Upgrader) readKept() (k kept, err error) {
	b, err := os.ReadFile(filepath.Join(u.o.Dir, keptName))
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	return k, err
}

// copyFile makes to an executable copy of a file. It replaces to by a new file, because to may be a program
// that runs.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	return machine.ReplaceFile(to, in, 0o700)
}
