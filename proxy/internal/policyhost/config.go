package policyhost

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
)

// Config describes the program to run. If a field below Dir is zero, it has its default.
type Config struct {
	Path       string // absolute path of the program
	ConfigFile string // absolute path, passed to the program as $HOLDFAST_POLICY_CONFIG; "" means that there is none
	SHA256     string // in hex; if set, only a program with this sum is started
	Dir        string // the user's own directory with mode 0700 for the program's socket; hosts may share it

	Deadline  time.Duration // for an answer; default 2 s
	StartTime time.Duration // for the handshake; default 10 s
	Grace     time.Duration // for the program to end when asked, and for the last events to be sent; default 2 s each, which is the maximum, too
	FirstWait time.Duration // before the first restart; doubled for each further one; default 100 ms
	LastWait  time.Duration // largest wait before a restart; default 30 s
	Settled   time.Duration // a program that has lived so long is restarted after FirstWait again; default 1 min
	Log       zerolog.Logger
}

func (c Config) withDefaults() Config {
	c.Deadline = cmp.Or(c.Deadline, 2*time.Second)
	c.StartTime = cmp.Or(c.StartTime, 10*time.Second)
	c.Grace = cmp.Or(c.Grace, 2*time.Second)
	c.FirstWait = cmp.Or(c.FirstWait, 100*time.Millisecond)
	c.LastWait = cmp.Or(c.LastWait, 30*time.Second)
	c.Settled = cmp.Or(c.Settled, time.Minute)
	c.SHA256 = strings.ToLower(c.SHA256)
	return c
}

// maxDir is the greatest length of Dir. On macOS a socket's path may have 103 bytes, and the
// library adds a directory and a file with random names to Dir.
const maxDir = 103 - len("/plugin-dir1234567890/plugin1234567890")

func (c Config) validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(filepath.IsAbs(c.Path), "the program's path must be absolute, it is %q", c.Path)
	check(c.ConfigFile == "" || filepath.IsAbs(c.ConfigFile), "the policy's configuration must be an absolute path, it is %q", c.ConfigFile)
	check(filepath.IsAbs(c.Dir), "the directory for the policy's socket must be absolute, it is %q", c.Dir)
	check(runtime.GOOS == "windows" || len(c.Dir) <= maxDir,
		"the directory for the policy's socket must have at most %d bytes, or the socket's path is too long: %s", maxDir, c.Dir)
	sum, err := hex.DecodeString(c.SHA256)
	check(c.SHA256 == "" || err == nil && len(sum) == 32, "the sum must be 64 hex digits, it is %q", c.SHA256)
	if err := errors.Join(faults...); err != nil {
		return &protocol.Error{Code: protocol.CodeInvalidArgument, Message: fmt.Sprintf("policy: %v", err)}
	}
	return nil
}
