package cli

import (
	"errors"
	"os"
	"os/exec"

	"holdfast/proxy/internal/exitcode"
)

// Execute runs a program, with argv[0] as its name, and ends with its exit code.
func Execute(path string, argv []string) error {
	cmd := &exec.Cmd{Path: path, Args: argv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exitcode.New(max(1, exit.ExitCode()), "")
	}
	return err
}

func lockFile(*os.File) bool { return true }
