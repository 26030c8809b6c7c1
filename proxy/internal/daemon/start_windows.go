package daemon

import (
	"context"
	"os/exec"
	"syscall"
)

const rootDir = `\`

// CloseInherited does nothing, because a program on Windows inherits only listed handles.
func CloseInherited() {}

func start(ctx context.Context, spec Spec) (*Process, error) { return direct(ctx, spec) }

// detachedProcess is the flag of CreateProcess that starts a process without a console.
const detachedProcess = 0x8

func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: detachedProcess | syscall.CREATE_NEW_PROCESS_GROUP}
}
