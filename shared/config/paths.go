package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

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

// Resolve says where things lie; it touches nothing. A directory given by
// --dir, or else $HOLDFAST_DIR, is all three. Otherwise they are "holdfast" in
// $XDG_RUNTIME_DIR, $XDG_STATE_HOME and $XDG_CONFIG_HOME, or in their place in
// the home directory; without a runtime directory it is "run" in the state
// directory.
//
// Where a socket's path would be too long for the system, Runtime is a short
// directory in /tmp, the same for everybody who resolves alike.
func Resolve(dirFlag string, env func(string) string) (Dirs, error) {
	return resolve(runtime.GOOS, dirFlag, env)
}

func resolve(goos, dirFlag string, env func(string) string) (Dirs, error) {
	var d Dirs
	if dir := cmp.Or(dirFlag, env("HOLDFAST_DIR")); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Dirs{}, fmt.Errorf("resolve %s: %w", dir, err)
		}
		d = Dirs{abs, abs, abs}
	} else {
		state, config := homes(goos, env)
		d.State = in(cmp.Or(absolute(env("XDG_STATE_HOME")), state), "holdfast")
		d.Config = in(cmp.Or(absolute(env("XDG_CONFIG_HOME")), config), "holdfast")
		d.Runtime = cmp.Or(in(absolute(env("XDG_RUNTIME_DIR")), "holdfast"), in(d.State, "run"))
	}
	if d.Runtime == "" || d.State == "" || d.Config == "" {
		return Dirs{}, errors.New("no home directory is known; set HOME, or choose a directory with --dir or HOLDFAST_DIR")
	}
	if goos != "windows" && len(d.Runtime)+1+maxSocketName > socket.MaxPath {
		sum := sha256.Sum256([]byte(d.Runtime))
		d.Runtime = fmt.Sprintf("/tmp/holdfast-%d-%s", os.Geteuid(), hex.EncodeToString(sum[:4]))
	}
	return d, nil
}

// homes returns where the system's users keep state and configuration, or
// nothing where that is not known.
func homes(goos string, env func(string) string) (state, config string) {
	home := absolute(env("HOME"))
	switch goos {
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

func ensure(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return socket.CheckDir(dir)
}
