package config

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// maxKeyText is the limit of the text of DurableKey in bytes.
const maxKeyText = 64 << 10

// ReadDurableKey returns the text that the setting durable_key names: the content of a file, which
// other users must have no right to read, or the output of a command. The command has no input,
// and is ended when ctx is done.
func (c Config) ReadDurableKey(ctx context.Context) (string, error) {
	if command, isCommand := strings.CutPrefix(c.DurableKey, "!"); isCommand {
		return commandOutput(ctx, command)
	}
	f, err := os.OpenFile(c.DurableKey, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would block; checkSecretFile refuses it
	if err != nil {
		return "", err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if err := checkSecretFile(fi); err != nil {
		return "", fmt.Errorf("%s: %w", c.DurableKey, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyText))
	return string(text), err
}

// commandOutput returns the output of a command of sh. Its errors do not quote the output, which is
// secret.
func commandOutput(ctx context.Context, command string) (string, error) {
	var out, problem limited
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr = &out, &problem
	cmd.WaitDelay = time.Second // a process that the command has left may hold its output open
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		first, _, _ := strings.Cut(problem.buf.String(), "\n")
		return "", fmt.Errorf("its command failed: %w: %.200s", err, first)
	}
	return out.buf.String(), nil
}

// limited is a buffer that drops all bytes after the first maxKeyText.
type limited struct{ buf bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.buf.Write(p[:min(len(p), maxKeyText-l.buf.Len())])
	return len(p), nil
}
