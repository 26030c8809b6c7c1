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

// sockets finds sockets of all proxies that have no process that holds their lock, or none that
// listens.
func (l *inspection) sockets(ctx context.Context) []Finding {
	if err := socket.CheckDir(l.Dirs.Runtime); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil // directories has a finding for that, and the sockets may belong to other programs
	}
	entries, err := os.ReadDir(l.Dirs.Runtime)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []Finding{{"sockets", Note, fmt.Sprintf("unknown: %v", err), "check the directory's permissions"}}
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

func (l *inspection) socket(ctx context.Context, path string) Finding {
	held, pid, err := l.holder(path)
	if err != nil {
		return Finding{Severity: Note, Finding: fmt.Sprintf("unknown whether the lock of %s is held: %v", path, err)}
	}
	fi, err := os.Lstat(path)
	switch {
	case err == nil && fi.Mode().Type() != fs.ModeSocket:
		return Finding{Severity: Error, Finding: path + " is not a socket", Fix: "remove it"}
	case held && err != nil:
		return Finding{Severity: Warning, Finding: fmt.Sprintf("%s is missing, though %s holds its lock", path, processName(pid)),
			Fix: "wait 10 s, within which its owner makes it again; else see the owner's log in " + l.Dirs.State}
	case held || err != nil: // served, or never bound, or removed in order
		return Finding{Severity: OK}
	}
	_, err = within(ctx, func(ctx context.Context) (any, error) { return nil, l.Listens(ctx, path) })
	switch {
	case errors.Is(err, ErrNotRunning):
		if _, err := os.Lstat(path); err != nil { // it was removed meanwhile
			return Finding{Severity: OK}
		}
		return Finding{Severity: Warning, Finding: path + " is stale: the process that listened was killed or has crashed",
			Fix: fmt.Sprintf("%s mends it, or remove it", mender(path))}
	case err != nil:
		return Finding{Severity: Note, Finding: fmt.Sprintf("unknown whether a process listens on %s: %v", path, err)}
	}
	return Finding{Severity: Warning, Finding: "a process listens on " + path + " without its lock, because the lock's file was removed",
		Fix: "wait 10 s, within which its owner takes the lock again"}
}

func processName(pid int) string {
	if pid == 0 {
		return "a process"
	}
	return fmt.Sprintf("process %d", pid)
}

// mender returns the command that replaces a stale socket.
func mender(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	if name == config.DefaultProxy || filepath.Base(path) == config.SupervisorSocket {
		return "proxy start"
	}
	return "proxy start --proxy " + name
}

// holder reports whether a socket's lock is held, and by which process; pid is 0 if that is
// unknown.
func (l *inspection) holder(path string) (held bool, pid int, err error) {
	if l.Proc == "" {
		held, err := l.Locked(path)
		return held, 0, err
	}
	for _, p := range l.procs {
		if p.holds(path) && (pid == 0 || p.hasKeeper) { // the keeper of a supervisor has the lock, too
			held, pid = true, p.pid
		}
	}
	return held, pid, nil
}
