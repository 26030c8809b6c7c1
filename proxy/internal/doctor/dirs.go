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

// directories finds directories that other users can use, and directories that cannot be made.
func (l *inspection) directories() []Finding {
	var found []Finding
	dirs := []string{l.Dirs.Runtime, l.Dirs.State, l.Dirs.Config}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	for _, dir := range dirs {
		err := socket.CheckDir(dir)
		switch {
		case err == nil && dir != l.Dirs.Runtime && dir != l.Dirs.State: // the settings are only read
		case err == nil:
			if err := writable(dir); err != nil { // its mode permits it, so the file system does not
				found = append(found, Finding{"directories", Error, fmt.Sprintf("%s cannot be written: %v", dir, err),
					"make its file system writable, or choose another directory (--dir or HOLDFAST_DIR)"})
			}
			if names := foreign(dir); len(names) > 0 {
				found = append(found, Finding{"directories", Warning,
					fmt.Sprintf("files in %s belong to another user, so that a proxy or a supervisor may not start: %s", dir, strings.Join(names, ", ")),
					fmt.Sprintf("if you ran a command there as that user, as by sudo, take them back: sudo chown -R %d %s", os.Geteuid(), dir)})
			}
			if names := misplaced(dir); len(names) > 0 {
				found = append(found, Finding{"directories", Warning,
					fmt.Sprintf("directories in %s have the names of files, so that a proxy or a supervisor may not start: %s", dir, strings.Join(names, ", ")),
					"move them to another place"})
			}
		case errors.Is(err, socket.ErrUnsafeDir):
			problem, fix := cutFix(err.Error())
			found = append(found, Finding{"directories", Error, problem, fix})
		default:
			found = append(found, missing(dir, err))
		}
		if err := socket.CheckParents(dir); err != nil {
			found = append(found, Finding{"directories", Error, fmt.Sprintf("no proxy or supervisor starts in %s: %v", dir, err),
				"choose another directory (--dir or HOLDFAST_DIR), or close that one to other users"})
		}
	}
	return orOK(found, "directories", strings.Join(dirs, ", ")+": private to this user")
}

// foreign returns the names of the files in a directory that belong to another user. The settings are only read, and links
// may lead to files of others.
func foreign(dir string) (names []string) {
	entries, _ := os.ReadDir(dir) // an error means that no file is known
	for _, e := range entries {
		if e.Name() == config.FileName || e.Type() == fs.ModeSymlink {
			continue
		}
		if uid, err := socket.Owner(filepath.Join(dir, e.Name())); err == nil && uid != os.Geteuid() {
			names = append(names, e.Name())
		}
	}
	return names
}

// misplaced returns the names of directories that stand in the way of a file of a proxy, a keeper or a supervisor.
func misplaced(dir string) (names []string) {
	entries, _ := os.ReadDir(dir) // an error means that no directory is known
	for _, e := range entries {
		if e.IsDir() && slices.Contains([]string{".lock", ".log", ".token", ".sock", ".crash"}, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names
}

// cutFix splits a message of package socket, which ends with "; " and the advice.
func cutFix(text string) (problem, fix string) {
	i := strings.LastIndex(text, "; ")
	if i < 0 {
		return text, "choose another directory (--dir or HOLDFAST_DIR)"
	}
	return text[:i], text[i+2:]
}

// missing returns the finding for a directory that does not exist: whether the next command will
// be able to make it in the part of its path that exists.
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
		err = errors.New("it is not a directory")
	default:
		err = writable(parent)
	}
	if err == nil && !errors.Is(why, fs.ErrNotExist) {
		err = why
	}
	if err != nil {
		return Finding{"directories", Error, fmt.Sprintf("%s does not exist and cannot be made in %s: %v", dir, parent, err),
			"if the system makes this directory at login, log in again; otherwise choose another directory (--dir or HOLDFAST_DIR)"}
	}
	return Finding{"directories", Note, dir + " does not exist yet", "the next command makes it"}
}

// places finds daemons of this user that a command with this environment does not reach.
func (l *inspection) places(ctx context.Context) (found []Finding) {
	for _, p := range l.Elsewhere(ctx) {
		found = append(found, Finding{"places", Warning,
			fmt.Sprintf("%s in %s, which commands with this environment do not use; they use %s", p.Runs, p.Dir, l.Dirs.Runtime), "see its sessions: " + p.Command})
	}
	return orOK(found, "places", "no daemon of yours runs elsewhere")
}

// paths finds sockets with paths that are too long for the system.
func (l *inspection) paths() []Finding {
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
		return []Finding{{"paths", Error, "socket paths are too long: " + used, "choose a directory with a shorter path (--dir or HOLDFAST_DIR)"}}
	case strings.HasPrefix(l.Dirs.Runtime, "/tmp/holdfast-") && l.Dirs.Runtime != l.Dirs.State:
		return []Finding{{"paths", Note, "sockets are in " + l.Dirs.Runtime + ", because the path of their usual directory is too long",
			"if a program cleans /tmp, choose a directory with a shorter path (--dir or HOLDFAST_DIR)"}}
	}
	return orOK(nil, "paths", used)
}

// tmpName is as long as the temporary names under which package socket binds.
const tmpName = ".tmp000000"

// settings finds mistakes in the settings, which stop every command.
func (l *inspection) settings() []Finding {
	var found []Finding
	if l.Settings != nil {
		found = append(found, Finding{"settings", Error, l.Settings.Error(), "correct " + filepath.Join(l.Dirs.Config, config.FileName) + " or the environment, as the message says"})
	}
	if len(l.Variables) > 0 {
		found = append(found, Finding{"settings", Note, "variables without a meaning in this release: " + strings.Join(l.Variables, ", "),
			"unset them, unless an app uses them"})
	}
	if l.Program != nil {
		severity := Error
		if l.supervisorErr == nil { // the supervisor that runs is not affected before its next start
			severity = Warning
		}
		found = append(found, Finding{"settings", severity, l.Program.Error(), "install the supervisor beside the proxy"})
	}
	if l.Policy != nil { // a proxy that serves has its policy already
		found = append(found, Finding{"settings", Error, "the next proxy will not serve: " + l.Policy.Error(), "repair it, or serve without one: proxy serve --policy none"})
	}
	if err := l.Web(errors.Is(l.proxyErr, ErrNotRunning)); err != nil {
		found = append(found, Finding{"settings", Error, "the next proxy will not serve: " + err.Error(), "choose another address for web in the settings (HOLDFAST_WEB)"})
	}
	return orOK(found, "settings", "valid, and the programs that they name exist")
}
