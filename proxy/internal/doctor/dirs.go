package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/shared/config"
	"holdfast/shared/socket"
)

// directories finds those that are not ours alone, and those that cannot be
// made.
func (l *look) directories() []Finding {
	var found []Finding
	dirs := []string{l.Dirs.Runtime, l.Dirs.State, l.Dirs.Config}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	for _, dir := range dirs {
		err := socket.CheckDir(dir)
		switch {
		case err == nil:
		case errors.Is(err, socket.ErrUnsafeDir):
			what, fix := cutFix(err.Error())
			found = append(found, Finding{"directories", Error, what, fix})
		default:
			found = append(found, missing(dir, err))
		}
		if err := socket.CheckParents(dir); err != nil {
			found = append(found, Finding{"directories", Error, fmt.Sprintf("no proxy or supervisor starts in %s: %v", dir, err),
				"choose another one (--dir or HOLDFAST_DIR), or have that one closed to others"})
		}
	}
	return orOK(found, "directories", strings.Join(dirs, ", ")+": ours alone")
}

// cutFix parts a message of package socket, which ends with what to do.
func cutFix(text string) (what, fix string) {
	i := strings.LastIndex(text, "; ")
	if i < 0 {
		return text, "choose another one (--dir or HOLDFAST_DIR)"
	}
	return text[:i], text[i+2:]
}

// missing says whether a directory that was not found will be made by the next
// command, in what there is of its path.
func missing(dir string, why error) Finding {
	parent := filepath.Dir(dir)
	fi, err := os.Stat(parent)
	for err != nil && parent != filepath.Dir(parent) {
		parent = filepath.Dir(parent)
		fi, err = os.Stat(parent)
	}
	switch {
	case err != nil:
	case !fi.IsDir():
		err = errors.New("it is no directory")
	default:
		err = writable(parent)
	}
	if err == nil && !errors.Is(why, fs.ErrNotExist) {
		err = why
	}
	if err != nil {
		return Finding{"directories", Error, fmt.Sprintf("%s is not there, and cannot be made in %s: %v", dir, parent, err),
			"log in anew if it is the system's to make, or choose another one (--dir or HOLDFAST_DIR)"}
	}
	return Finding{"directories", Note, dir + " does not exist yet", "the next command makes it"}
}

// places finds daemons of the same user that commands with this environment do
// not reach.
func (l *look) places(ctx context.Context) (found []Finding) {
	for _, p := range l.Elsewhere(ctx) {
		found = append(found, Finding{"places", Warning,
			fmt.Sprintf("%s in %s, where no command with this environment looks; here is %s", p.Runs, p.Dir, l.Dirs.Runtime), "see its sessions: " + p.Command})
	}
	return orOK(found, "places", "no daemon of yours runs elsewhere")
}

// paths finds sockets whose paths the system cannot bind.
func (l *look) paths() []Finding {
	longest := ""
	for _, name := range []string{
		config.SupervisorSocket, config.APISocket(l.Proxy), config.WebSocket(l.Proxy), config.ControlSocket(l.Proxy), tmpName,
	} {
		if path := l.Dirs.Socket(name); len(path) > len(longest) {
			longest = path
		}
	}
	used := fmt.Sprintf("the longest, %s, has %d bytes of %d", longest, len(longest), socket.MaxPath)
	switch {
	case len(longest) > socket.MaxPath:
		return []Finding{{"paths", Error, "socket paths are too long: " + used, "choose a shorter directory (--dir or HOLDFAST_DIR)"}}
	case strings.HasPrefix(l.Dirs.Runtime, "/tmp/holdfast-") && l.Dirs.Runtime != l.Dirs.State:
		return []Finding{{"paths", Note, "sockets lie in " + l.Dirs.Runtime + ", for the path of the directory meant for them is too long",
			"choose a shorter directory (--dir or HOLDFAST_DIR), should something clean /tmp"}}
	}
	return orOK(nil, "paths", used)
}

// tmpName is as long as the names under which package socket binds.
const tmpName = ".tmp000000"

// settings finds what keeps every command from working.
func (l *look) settings() []Finding {
	var found []Finding
	if l.Settings != nil {
		found = append(found, Finding{"settings", Error, l.Settings.Error(), "mend " + filepath.Join(l.Dirs.Config, config.FileName) + " or the environment, as it says"})
	}
	if len(l.Variables) > 0 {
		found = append(found, Finding{"settings", Note, "variables that mean nothing to this release: " + strings.Join(l.Variables, ", "),
			"unset them, unless an app uses them for its own"})
	}
	if l.Program != nil {
		severity := Error
		if l.supErr == nil { // until it is started again
			severity = Warning
		}
		found = append(found, Finding{"settings", severity, l.Program.Error(), "install the supervisor beside the proxy"})
	}
	if l.Policy != nil { // which a proxy that serves has started before
		found = append(found, Finding{"settings", Error, "the next proxy will not serve: " + l.Policy.Error(), "mend it, or serve without one: proxy serve --policy none"})
	}
	return orOK(found, "settings", "they can be used, and the programs that they need are there")
}
