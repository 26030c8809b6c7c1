package reexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"holdfast/shared/machine"
	"holdfast/shared/tail"
)

// trialTime is how long a program on trial may take until it calls Passed. It usually takes
// some milliseconds.
const trialTime = 10 * time.Second

// maxOutputBytes bounds the output of a program on trial that is kept, in bytes. maxTraceBytes bounds it together with the
// stack traces of a crash, which follow its cause.
const (
	maxOutputBytes = 1 << 10
	maxTraceBytes  = 64 << 10
)

// childrenTime is how long the children of a program on trial may hold its output open after it has
// ended.
const childrenTime = time.Second

// firstFile is the descriptor of the first file of a trial. Descriptor 3 is the program, 4 the
// manifest.
const firstFile = 5

// Try runs the program with args as a child, on a copy of the manifest, and returns the version
// that the child reports. It returns an error unless the child calls Passed: the program may be
// unable to run, crash, hang, or not know the manifest. The child may read files, and must not
// write to them. All of them should be memory files, because they become blocking. They still
// belong to the caller.
func (p *Program) Try(ctx context.Context, manifest []byte, files []*os.File, args []string) (version string, err error) {
	fds := make([]int, len(files))
	for i := range files {
		fds[i] = firstFile + i
	}
	file, err := memoryFile(header{fds}, manifest)
	if err != nil {
		return "", p.failed("try", err)
	}
	defer file.Close()
	out := &answer{}
	state, said, err := p.runTrial(ctx, trialEnv, append([]*os.File{file}, files...), args, out)
	version, ok := strings.CutPrefix(string(out.b), passed)
	switch {
	case state == nil:
		return "", p.failed("try", err)
	case err != nil:
		return "", p.failed("try", fmt.Errorf("%w: %s", err, said))
	case !ok:
		return "", p.failed("try", fmt.Errorf("it did not report that it can continue, it printed %.100q", out.b))
	}
	return strings.TrimSpace(strings.ToValidUTF8(version, "")), nil
}

// TryAs runs the program with args as a child, to find out whether it could continue with a
// manifest of another package's format, as ExecAs gives it. The child passes if it ends with the
// exit code passed. The manifest's descriptors are not given to the child.
func (p *Program) TryAs(ctx context.Context, env string, memory *os.File, args []string, passed int) error {
	state, said, err := p.runTrial(ctx, env, []*os.File{memory}, args, nil)
	switch {
	case state == nil:
		return p.failed("try", err)
	case state.ExitCode() != passed:
		return p.failed("try", fmt.Errorf("%v: %s", state, said))
	}
	return nil
}

// runTrial runs the program with args as a child. The child has the program as descriptor 3 and the
// files from descriptor 4 on, and env names the first of them. It writes to out, which may be nil.
// state tells how the child has ended, and err is that of exec.Cmd.Run; state is nil if the child
// could not be started or has not ended within trialTime. said is what it has printed, without
// what out has received, and without stack traces.
func (p *Program) runTrial(ctx context.Context, env string, files []*os.File, args []string, out io.Writer) (state *os.ProcessState, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	output := &tail.Tail{Max: maxTraceBytes}
	if out == nil {
		out = output
	}
	cmd := exec.CommandContext(ctx, p.execPath(3), args...)
	cmd.Args[0] = p.path
	cmd.ExtraFiles = append([]*os.File{p.file}, files...)
	cmd.Env = append(os.Environ(), env+"=4")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, output, childrenTime
	apart(cmd)
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, "", fmt.Errorf("it did not answer within %v", trialTime)
	}
	if errors.Is(err, syscall.EAGAIN) { // of fork
		err = fmt.Errorf("%s: %w", machine.ProcessLimit, err)
	}
	return cmd.ProcessState, strings.ToValidUTF8(withoutTraces(output.String()), ""), err
}

// withoutTraces returns the end of the output of a program. If the program has crashed, the stack traces are omitted, so that
// the end of the output is the cause.
func withoutTraces(output string) string {
	for _, trace := range []string{"\n\nruntime stack:\n", "\n\ngoroutine "} {
		output, _, _ = strings.Cut(output, trace)
	}
	output = strings.TrimSpace(output)
	return output[max(0, len(output)-maxOutputBytes):]
}

// passed is the text that a program on trial prints before its version if it can continue. It
// must not change, because a trial may be run by a program of another version.
const passed = "holdfast: can go on: "

// Passed reports, on a trial, that this program can continue with the manifest.
func Passed(version string) error {
	_, err := os.Stdout.WriteString(passed + version + "\n")
	return err
}

// An answer keeps the output of a program on trial. A write fails if the output exceeds
// maxOutputBytes.
type answer struct{ b []byte }

func (a *answer) Write(p []byte) (int, error) {
	n := min(len(p), maxOutputBytes-len(a.b))
	a.b = append(a.b, p[:n]...)
	if n < len(p) {
		return n, errTooMuchOutput
	}
	return n, nil
}

var errTooMuchOutput = fmt.Errorf("it printed more than %d bytes", maxOutputBytes)
