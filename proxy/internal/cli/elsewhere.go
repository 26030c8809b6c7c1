package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdfast/proxy/internal/doctor"
	"holdfast/shared/config"
	"holdfast/shared/plain"
)

// elsewherePatience is how long the supervisor of another runtime directory may take to answer. If
// it does not answer, the directory is listed without its number of sessions.
const elsewherePatience = time.Second

// elsewhere describes this user's processes that run in other runtime directories than dirs,
// because they were started with another environment.
func (a *App) elsewhere(ctx context.Context, dirs config.Dirs, secret string) (places []doctor.Place) {
	for _, dir := range config.Elsewhere(dirs, a.Dir, os.Getenv) {
		p := doctor.Place{Dir: dir, Runs: "daemons of yours run", Command: reach(dir)}
		asking, cancel := context.WithTimeout(ctx, elsewherePatience)
		if s, err := askSupervisor(asking, config.Dirs{Runtime: dir}, secret); err == nil {
			p.Runs = fmt.Sprintf("a supervisor of yours runs (process %d, sessions: %d)", s.PID, s.Sessions)
		}
		cancel()
		places = append(places, p)
	}
	return places
}

// reach returns the command that lists the sessions of a runtime directory.
func reach(dir string) string {
	if filepath.Dir(filepath.Dir(dir)) == "/run/user" {
		return "XDG_RUNTIME_DIR=" + filepath.Dir(dir) + " proxy ls"
	}
	return "proxy ls --dir " + plain.ShellWord(dir)
}
