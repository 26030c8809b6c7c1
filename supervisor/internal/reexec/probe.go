package reexec

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// TrialTime is how long a program may take to say that it can go on; it takes
// some milliseconds.
const TrialTime = 10 * time.Second

// maxSaid bounds what a program on trial may say that is told.
const maxSaid = 1 << 10

// leftTime is how long what a program has left behind may hold its output open.
const leftTime = time.Second

// firstFile is the descriptor of the first of a trial's files: 3 is the program, 4
// the manifest.
const firstFile = 5

// Try runs the program as a child on a copy of a manifest, with these arguments, and
// returns the version that it says it is of. It returns an error unless the child
// has called Passed: one that cannot be run, crashes, hangs, or does not know what
// to do. The files are those that it may look at, and must not write to: only such that lie in
// memory, as they become blocking. They stay the caller's.
func (p *Program) Try(ctx context.Context, manifest []byte, files []*os.File, args []string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, TrialTime)
	defer cancel()
	fds := make([]int, len(files))
	for i := range files {
		fds[i] = firstFile + i
	}
	file, err := memoryFile(header{fds}, manifest)
	if err != nil {
		return "", p.failed("try", err)
	}
	defer file.Close()
	said, out := &tail{}, &answer{}
	cmd := exec.CommandContext(ctx, p.execPath(3), args...)
	cmd.Args[0] = p.path
	cmd.ExtraFiles = append([]*os.File{p.file, file}, files...)
	cmd.Env = append(os.Environ(), trialEnv+"=4")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, said, leftTime
	apart(cmd)
	err = cmd.Run()
	version, ok := strings.CutPrefix(string(out.b), passed)
	switch {
	case ctx.Err() != nil:
		return "", p.failed("try", fmt.Errorf("it did not answer within %v", TrialTime))
	case err != nil:
		return "", p.failed("try", fmt.Errorf("%w: %s", err, said))
	case !ok:
		return "", p.failed("try", fmt.Errorf("it does not know how to go on, it says %.100q", out.b))
	}
	return strings.TrimSpace(strings.ToValidUTF8(version, "")), nil
}

// passed is what a program says that can go on; its version follows.
const passed = "holdfast: can go on: "

// Passed says so.
func Passed(version string) error {
	_, err := os.Stdout.WriteString(passed + version + "\n")
	return err
}

// answer is all that is written to it, which must not be much.
type answer struct{ b []byte }

func (a *answer) Write(p []byte) (int, error) {
	n := min(len(p), maxSaid-len(a.b))
	a.b = append(a.b, p[:n]...)
	if n < len(p) {
		return n, errTalks
	}
	return n, nil
}

var errTalks = fmt.Errorf("it says more than %d bytes", maxSaid)

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-maxSaid):]
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(bytes.ToValidUTF8(t.b, nil))) }
