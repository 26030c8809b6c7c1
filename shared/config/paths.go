package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"holdfast/shared/socket"
)

// maxSocketName is the longest file name of a socket, in bytes. The present names are
// shorter. The surplus is reserved, so that a new name never moves the sockets of an update.
const maxSocketName = 40

// Dirs contains the absolute paths of Holdfast's directories. Each must belong to the user
// and must have mode 0700.
type Dirs struct {
	Runtime string // sockets and locks
	State   string // logs, and state that must survive a restart
	Config  string // holdfast.json
}

// usersRuntime contains a runtime directory for each user with a login session, named by
// the uid. systemd and elogind create it.
const usersRuntime = "/run/user"

// Resolve returns Holdfast's directories without creating them. If dirFlag (--dir), or else
// $HOLDFAST_DIR, is set, it is all three directories. Otherwise they are "holdfast" in
// $XDG_RUNTIME_DIR, $XDG_STATE_HOME and $XDG_CONFIG_HOME, or in the defaults of these below
// the home directory. The home directory is $HOME, or else that of the user database.
//
// A user must have only one runtime directory, whether or not a login has set the
// environment, because cron, su and "docker exec" must find the supervisor that a login
// shell has started. If $XDG_RUNTIME_DIR is unset, or belongs to another user (su keeps it),
// Resolve therefore uses /run/user/UID if that directory belongs to the user and has mode
// 0700. Otherwise the runtime directory is "run" in the state directory. A daemon that was
// started before /run/user/UID existed (by cron, before a login) uses "run". If such a daemon
// still runs, and none runs in /run/user/UID, Resolve returns "run" as the runtime directory.
//
// If a socket's path would be too long for the system, Runtime is a short directory in /tmp. Its
// name is computed from the long path, so that all processes use the same directory.
func Resolve(dirFlag string, env func(string) string) (Dirs, error) {
	return thisSystem().resolve(dirFlag, env)
}

// Elsewhere returns the other runtime directories in which a daemon of this user runs now. A
// supervisor that was started with another environment may hold a session that the user
// misses. If dirFlag or $HOLDFAST_DIR chose d, Elsewhere returns none.
func Elsewhere(d Dirs, dirFlag string, env func(string) string) []string {
	return thisSystem().elsewhere(d, dirFlag, env)
}

// A system contains the facts, besides the environment, that determine the directories.
type system struct {
	goos  string
	uid   int           // the user of this process
	users string        // usersRuntime, or "" if the system has none
	home  func() string // returns the home directory of the user database, or ""
}

func thisSystem() system {
	s := system{goos: runtime.GOOS, uid: os.Geteuid(), home: homeByDatabase}
	if s.goos == "linux" {
		s.users = usersRuntime
	}
	return s
}

func homeByDatabase() string {
	u, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil {
		return ""
	}
	return absoluteOnly(u.HomeDir)
}

func (s system) resolve(dirFlag string, env func(string) string) (Dirs, error) {
	if dir := cmp.Or(dirFlag, env("HOLDFAST_DIR")); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Dirs{}, fmt.Errorf("the directory %s cannot be found from the working directory, which cannot be used: %w; cd to another one", dir, err)
		}
		return Dirs{s.shorten(abs), abs, abs}, nil
	}
	var d Dirs
	state, config := s.baseDirs(env)
	d.State = joinKnown(cmp.Or(absoluteOnly(env("XDG_STATE_HOME")), state), "holdfast")
	d.Config = joinKnown(cmp.Or(absoluteOnly(env("XDG_CONFIG_HOME")), config), "holdfast")
	d.Runtime = s.shorten(cmp.Or(joinKnown(s.runtime(env), "holdfast"), joinKnown(d.State, "run")))
	if d.Runtime == "" || d.State == "" || d.Config == "" {
		return Dirs{}, errors.New("no home directory is known; set HOME, or choose a directory with --dir or HOLDFAST_DIR")
	}
	if d.Runtime == s.shorten(joinKnown(s.ownRuntime(), "holdfast")) && !isServed(d.Runtime) {
		for _, old := range s.fallbacks(env) {
			if isServed(old) {
				d.Runtime = old
				break
			}
		}
	}
	return d, nil
}

// runtime returns the user's runtime directory, or "" if there is none.
func (s system) runtime(env func(string) string) string {
	dir := absoluteOnly(env("XDG_RUNTIME_DIR"))
	if owner, err := socket.Owner(dir); dir != "" && (err != nil || owner == s.uid) {
		return dir
	}
	return s.ownRuntime()
}

// ownRuntime returns /run/user/UID if it is private to the user, or "".
func (s system) ownRuntime() string {
	if s.users == "" {
		return ""
	}
	dir := filepath.Join(s.users, strconv.Itoa(s.uid))
	if socket.CheckDir(dir) != nil {
		return ""
	}
	return dir
}

// fallbacks returns the runtime directories that Resolve uses without $XDG_RUNTIME_DIR: "run"
// in the state directory, according to the environment and to the user database.
func (s system) fallbacks(env func(string) string) (dirs []string) {
	byEnv, _ := s.baseDirs(env)
	byDatabase, _ := s.baseDirs(func(string) string { return "" })
	for _, state := range []string{absoluteOnly(env("XDG_STATE_HOME")), byEnv, byDatabase} {
		if dir := s.shorten(joinKnown(joinKnown(state, "holdfast"), "run")); dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func (s system) elsewhere(d Dirs, dirFlag string, env func(string) string) (dirs []string) {
	if cmp.Or(dirFlag, env("HOLDFAST_DIR")) != "" {
		return nil
	}
	for _, dir := range append([]string{s.shorten(joinKnown(s.ownRuntime(), "holdfast"))}, s.fallbacks(env)...) {
		if dir != "" && dir != d.Runtime && isServed(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// isServed reports whether a process holds the lock of a socket in dir. That is also true if
// the process is stopped, or if its socket was removed.
func isServed(dir string) bool {
	locks, _ := filepath.Glob(filepath.Join(globQuote(dir), "*.sock.lock")) // Glob fails only for a malformed pattern
	return slices.ContainsFunc(locks, func(lock string) bool {
		held, err := socket.Locked(strings.TrimSuffix(lock, ".lock"))
		return err == nil && held
	})
}

// globQuote returns a pattern that matches only path.
func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// shorten returns dir, or a short directory in /tmp if the path of a socket in dir would be
// too long.
func (s system) shorten(dir string) string {
	if s.goos == "windows" || len(dir)+1+maxSocketName <= socket.MaxPath {
		return dir
	}
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("/tmp/holdfast-%d-%s", s.uid, hex.EncodeToString(sum[:4]))
}

// baseDirs returns the user's directories for state and configuration by the conventions of
// the system, or "" if no home directory is known.
func (s system) baseDirs(env func(string) string) (state, config string) {
	home := absoluteOnly(env("HOME"))
	if home == "" {
		home = s.home()
	}
	switch s.goos {
	case "windows":
		local := absoluteOnly(env("LOCALAPPDATA"))
		return local, local
	case "darwin":
		support := joinKnown(home, "Library/Application Support")
		return support, support
	}
	return joinKnown(home, ".local/state"), joinKnown(home, ".config")
}

// joinKnown returns name in dir, or "" if dir is "".
func joinKnown(dir, name string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// absoluteOnly returns path, or "" if path is relative. The XDG specification requires to
// ignore relative values. The result therefore does not depend on the working directory.
func absoluteOnly(path string) string {
	if !filepath.IsAbs(path) {
		return ""
	}
	return filepath.Clean(path)
}

// Socket returns the path of a socket with the given file name.
func (d Dirs) Socket(name string) string { return filepath.Join(d.Runtime, name) }

// Ensure creates the directories that are missing, with mode 0700. It returns an error that
// is socket.ErrUnsafeDir if a directory is not private to the user. It must not repair such
// a directory, because its mode may be intended, and another user may have put files there.
func (d Dirs) Ensure() error {
	for _, dir := range []string{d.Runtime, d.State, d.Config} {
		if err := ensure(dir); err != nil {
			return fmt.Errorf("directory %s: %w", dir, err)
		}
	}
	return nil
}

// Check returns the same errors as Ensure, but creates no directory and accepts a missing
// one. It is for commands that only read.
func (d Dirs) Check() error {
	for _, dir := range []string{d.Runtime, d.State, d.Config} {
		if err := socket.CheckDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("directory %s: %w", dir, err)
		}
	}
	return nil
}

// CheckParents returns an error if another user could replace one of the directories, because
// that user can write to a directory above it. The other user could then redirect Holdfast's
// files to the user's other files. The error names the directory that must be changed.
func (d Dirs) CheckParents() error {
	for _, dir := range []string{d.Runtime, d.State, d.Config} {
		if err := socket.CheckParents(dir); err != nil {
			return fmt.Errorf("directory %s: %w; choose another directory (--dir or HOLDFAST_DIR), or close that one to other users", dir, err)
		}
	}
	return nil
}

func ensure(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return socket.CheckDir(dir)
}

// Recordings returns the directory in which sessions are stored.
func (d Dirs) Recordings() string { return filepath.Join(d.State, "sessions") }

// HasRecordings reports whether a session is stored. Each one has a directory. A name that ends with "~" belongs to a
// session that was forgotten, and its files are being erased.
func (d Dirs) HasRecordings() bool {
	stored, err := os.ReadDir(d.Recordings())
	return err == nil && slices.ContainsFunc(stored, func(e os.DirEntry) bool { return e.IsDir() && !strings.HasSuffix(e.Name(), "~") })
}
