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

// maxSocketName is how long a socket's name may be, in bytes. It is reserved
// whatever the names of today are, so that an update never moves the sockets.
const maxSocketName = 40

// Dirs are the directories we use. All are ours alone, mode 0700.
type Dirs struct {
	Runtime string // sockets and locks
	State   string // logs, and what outlives a restart
	Config  string // holdfast.json
}

// usersRuntime holds a runtime directory for each user that has logged in, named
// by the uid. systemd and elogind make it.
const usersRuntime = "/run/user"

// Resolve says where things lie; it creates nothing. A directory given by --dir,
// or else $HOLDFAST_DIR, is all three. Otherwise they are "holdfast" in
// $XDG_RUNTIME_DIR, $XDG_STATE_HOME and $XDG_CONFIG_HOME, or in their place in
// the home directory, which is $HOME, or else what the user database says.
//
// A user must have one runtime directory, whether or not a login has set the
// environment: cron, su and "docker exec" must find the supervisor that a login
// shell has started. So if $XDG_RUNTIME_DIR is unset, or belongs to another user
// (su keeps it), /run/user/UID counts, provided that it is the user's own and has
// mode 0700. Without one, the runtime directory is "run" in the state directory.
// Releases that did not know /run/user/UID started daemons there: as long as one
// of those runs, and none in /run/user/UID, "run" is the runtime directory.
//
// If a socket's path would be too long for the system, Runtime is a short
// directory in /tmp, the same for all processes that resolve alike.
func Resolve(dirFlag string, env func(string) string) (Dirs, error) {
	return thisSystem().resolve(dirFlag, env)
}

// Elsewhere returns the other runtime directories in which a daemon of this user
// runs now, if the environment chose d and not --dir or $HOLDFAST_DIR: a
// supervisor that was started with another environment may hold the session
// that is missed.
func Elsewhere(d Dirs, dirFlag string, env func(string) string) []string {
	return thisSystem().elsewhere(d, dirFlag, env)
}

// A system is what the directories depend on besides the environment.
type system struct {
	goos  string
	uid   int
	users string        // usersRuntime, or "" if the system has none
	home  func() string // the home directory by the user database; "" if unknown
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
	return absolute(u.HomeDir)
}

func (s system) resolve(dirFlag string, env func(string) string) (Dirs, error) {
	if dir := cmp.Or(dirFlag, env("HOLDFAST_DIR")); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Dirs{}, fmt.Errorf("resolve %s: %w", dir, err)
		}
		return Dirs{s.shorten(abs), abs, abs}, nil
	}
	var d Dirs
	state, config := s.homes(env)
	d.State = in(cmp.Or(absolute(env("XDG_STATE_HOME")), state), "holdfast")
	d.Config = in(cmp.Or(absolute(env("XDG_CONFIG_HOME")), config), "holdfast")
	d.Runtime = s.shorten(cmp.Or(in(s.runtime(env), "holdfast"), in(d.State, "run")))
	if d.Runtime == "" || d.State == "" || d.Config == "" {
		return Dirs{}, errors.New("no home directory is known; set HOME, or choose a directory with --dir or HOLDFAST_DIR")
	}
	if d.Runtime == s.shorten(in(s.ownRuntime(), "holdfast")) && !isServed(d.Runtime) {
		for _, old := range s.fallbacks(env) {
			if isServed(old) {
				d.Runtime = old
				break
			}
		}
	}
	return d, nil
}

// runtime returns the user's runtime directory, or "".
func (s system) runtime(env func(string) string) string {
	dir := absolute(env("XDG_RUNTIME_DIR"))
	if owner, err := socket.Owner(dir); dir != "" && (err != nil || owner == s.uid) {
		return dir
	}
	return s.ownRuntime()
}

// ownRuntime returns /run/user/UID if it is the user's alone, else "".
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

// fallbacks returns the runtime directories without $XDG_RUNTIME_DIR: "run" in
// the state directory, by the environment and by the user database.
func (s system) fallbacks(env func(string) string) (dirs []string) {
	byEnv, _ := s.homes(env)
	byDatabase, _ := s.homes(func(string) string { return "" })
	for _, state := range []string{absolute(env("XDG_STATE_HOME")), byEnv, byDatabase} {
		if dir := s.shorten(in(in(state, "holdfast"), "run")); dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func (s system) elsewhere(d Dirs, dirFlag string, env func(string) string) (dirs []string) {
	if cmp.Or(dirFlag, env("HOLDFAST_DIR")) != "" {
		return nil
	}
	for _, dir := range append([]string{s.shorten(in(s.ownRuntime(), "holdfast"))}, s.fallbacks(env)...) {
		if dir != "" && dir != d.Runtime && isServed(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// isServed reports whether a process holds the lock of a socket in dir. A daemon
// that is stopped, or whose socket was removed, holds it as well.
func isServed(dir string) bool {
	locks, _ := filepath.Glob(filepath.Join(globQuote(dir), "*.sock.lock")) // fails for a bad pattern alone
	return slices.ContainsFunc(locks, func(lock string) bool {
		held, err := socket.Locked(strings.TrimSuffix(lock, ".lock"))
		return err == nil && held
	})
}

// globQuote returns a pattern that matches path alone.
func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// shorten returns dir, or a short directory in its place if the path of a socket
// in dir would be too long.
func (s system) shorten(dir string) string {
	if s.goos == "windows" || len(dir)+1+maxSocketName <= socket.MaxPath {
		return dir
	}
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("/tmp/holdfast-%d-%s", s.uid, hex.EncodeToString(sum[:4]))
}

// homes returns where the system's users keep state and configuration, or "" if
// that is not known.
func (s system) homes(env func(string) string) (state, config string) {
	home := absolute(env("HOME"))
	if home == "" {
		home = s.home()
	}
	switch s.goos {
	case "windows":
		local := absolute(env("LOCALAPPDATA"))
		return local, local
	case "darwin":
		support := in(home, "Library/Application Support")
		return support, support
	}
	return in(home, ".local/state"), in(home, ".config")
}

// in returns name in dir, and nothing in nothing.
func in(dir, name string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// absolute returns nothing for a relative path: the XDG specification has such
// values ignored, and so they mean the same wherever we are started.
func absolute(path string) string {
	if !filepath.IsAbs(path) {
		return ""
	}
	return filepath.Clean(path)
}

// Socket returns the path of a socket, by the name of its file.
func (d Dirs) Socket(name string) string { return filepath.Join(d.Runtime, name) }

// Ensure creates the directories that are missing, with mode 0700, and returns
// socket.ErrUnsafeDir for one that is not ours alone. It does not mend such a
// one: who opened it may have meant it, and what lies in it may be a trap.
func (d Dirs) Ensure() error {
	for _, dir := range []string{d.Runtime, d.State, d.Config} {
		if err := ensure(dir); err != nil {
			return fmt.Errorf("directory %s: %w", dir, err)
		}
	}
	return nil
}

// Check is Ensure for a process that only looks: it makes nothing, and a directory that
// is missing is no error.
func (d Dirs) Check() error {
	for _, dir := range []string{d.Runtime, d.State, d.Config} {
		if err := socket.CheckDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("directory %s: %w", dir, err)
		}
	}
	return nil
}

// CheckParents returns an error if another user could put a directory of theirs in
// the place of one of d, by a directory above it: what we then wrote, they could
// turn into writes to the user's other files. It says which directory that is.
func (d Dirs) CheckParents() error {
	for _, dir := range []string{d.Runtime, d.State, d.Config} {
		if err := socket.CheckParents(dir); err != nil {
			return fmt.Errorf("directory %s: %w; choose another one (--dir or HOLDFAST_DIR), or have that one closed to others", dir, err)
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
