package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"holdfast/shared/config"
	"holdfast/shared/socket"
)

// sockets finds those that lack their lock's holder or their listener, of all
// proxies there are.
func (l *look) sockets(ctx context.Context) []Finding {
	if err := socket.CheckDir(l.Dirs.Runtime); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil // which another finding says; what lies there may be other programs'
	}
	entries, err := os.ReadDir(l.Dirs.Runtime)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []Finding{{"sockets", Note, fmt.Sprintf("unknown: %v", err), "see that the directory can be used"}}
	}
	var found []Finding
	seen := map[string]bool{}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".lock")
		if !strings.HasSuffix(name, ".sock") || seen[name] {
			continue
		}
		seen[name] = true
		if f := l.socket(ctx, l.Dirs.Socket(name)); f.Severity != OK {
			f.Check = "sockets"
			found = append(found, f)
		}
	}
	return orOK(found, "sockets", fmt.Sprintf("%d, none stale", len(seen)))
}

func (l *look) socket(ctx context.Context, path string) Finding {
	held, pid, err := l.holder(path)
	if err != nil {
		return Finding{Severity: Note, Finding: fmt.Sprintf("unknown whether the lock of %s is held: %v", path, err)}
	}
	fi, err := os.Lstat(path)
	switch {
	case err == nil && fi.Mode().Type() != fs.ModeSocket:
		return Finding{Severity: Error, Finding: path + " is no socket", Fix: "remove it"}
	case held && err != nil:
		return Finding{Severity: Warning, Finding: fmt.Sprintf("%s is missing, though %s holds its lock", path, processName(pid)),
			Fix: "wait 10 s, within which its owner makes it again; else see the owner's log in " + l.Dirs.State}
	case held || err != nil: // served; or never bound, or left in order
		return Finding{Severity: OK}
	}
	_, err = within(ctx, func(ctx context.Context) (any, error) { return nil, l.Listens(ctx, path) })
	switch {
	case errors.Is(err, ErrNotRunning):
		if _, err := os.Lstat(path); err != nil {
			return Finding{Severity: OK} // it has left by now
		}
		return Finding{Severity: Warning, Finding: path + " is stale: whoever listened was killed or crashed",
			Fix: fmt.Sprintf("%s mends it, or remove it", mender(path))}
	case err != nil:
		return Finding{Severity: Note, Finding: fmt.Sprintf("unknown whether anybody listens on %s: %v", path, err)}
	}
	return Finding{Severity: Warning, Finding: "somebody listens on " + path + " without its lock: an older program, or the lock's file was removed",
		Fix: "wait 10 s, within which its owner takes the lock again"}
}

func processName(pid int) string {
	if pid == 0 {
		return "a process"
	}
	return fmt.Sprintf("process %d", pid)
}

// mender is the command that finds a stale socket in its way, and removes it.
func mender(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	if name == config.DefaultProxy || filepath.Base(path) == config.SupervisorSocket {
		return "proxy start"
	}
	return "proxy start --proxy " + name
}

// holder says whether a socket's lock is held, and by whom if that is known.
func (l *look) holder(path string) (held bool, pid int, err error) {
	if l.Proc == "" {
		held, err := l.Locked(path)
		return held, 0, err
	}
	for _, p := range l.procs {
		if p.holds(path) && (pid == 0 || p.proper) { // its keeper has the lock, too
			held, pid = true, p.pid
		}
	}
	return held, pid, nil
}
