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

// Try runs the program as a child on a copy of a manifest, with these arguments.
// It returns an error unless the child has called Passed: one that cannot be run,
// crashes, hangs, or does not know what to do. The manifest's files are not there.
func (p *Program) Try(ctx context.Context, manifest []byte, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, TrialTime)
	defer cancel()
	file, err := memoryFile(header{}, manifest)
	if err != nil {
		return p.failed("try", err)
	}
	defer file.Close()
	said := &tail{}
	cmd := exec.CommandContext(ctx, p.execPath(3), args...)
	cmd.Args[0] = p.path
	cmd.ExtraFiles = []*os.File{p.file, file} // 3 and 4
	cmd.Env = append(os.Environ(), trialEnv+"=4")
	cmd.Stderr = said
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return p.failed("try", fmt.Errorf("it did not answer within %v", TrialTime))
	case err != nil:
		return p.failed("try", fmt.Errorf("%w: %s", err, said))
	case string(out) != passed:
		return p.failed("try", fmt.Errorf("it does not know how to go on, it says %.100q", out))
	}
	return nil
}

// passed is what a program says that can go on.
const passed = "holdfast: can go on\n"

// Passed says so.
func Passed() error {
	_, err := os.Stdout.WriteString(passed)
	return err
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-maxSaid):]
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(bytes.ToValidUTF8(t.b, nil))) }
