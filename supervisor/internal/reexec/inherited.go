package reexec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"holdfast/shared/machine"
)

// Inherited returns the manifest and the descriptors that the previous program of this process
// gave to Exec, in the same order. ok is false if this process was started in another way. The
// descriptors are close-on-exec again, and the variable is removed from the environment.
func Inherited() (manifest []byte, fds []int, ok bool, err error) {
	return inherited(inheritEnv)
}

// OnTrial returns a manifest and descriptors that this program should try to read. If it can
// continue with them, it must call Passed. ok is false if this program is not on trial.
func OnTrial() (manifest []byte, fds []int, ok bool, err error) {
	return inherited(trialEnv)
}

func inherited(env string) (manifest []byte, fds []int, ok bool, err error) {
	value, ok := os.LookupEnv(env)
	if !ok {
		return nil, nil, false, nil
	}
	if err := os.Unsetenv(env); err != nil {
		return nil, nil, true, err
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, nil, true, fmt.Errorf("environment variable %s=%q is not a descriptor", env, value)
	}
	closeOnExecAgain(fd)
	memory := os.NewFile(uintptr(fd), "manifest")
	defer memory.Close()
	all, err := io.ReadAll(io.LimitReader(io.NewSectionReader(memory, 0, maxManifest), maxManifest))
	if err != nil {
		return nil, nil, true, fmt.Errorf("cannot read the manifest: %w", err)
	}
	line, manifest, _ := bytes.Cut(all, []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, nil, true, fmt.Errorf("cannot read the manifest: %w", err)
	}
	for _, fd := range h.Files {
		closeOnExecAgain(fd)
	}
	return manifest, h.Files, true, nil
}

// memoryFile returns a memory file that holds a header and a manifest.
func memoryFile(h header, manifest []byte) (*os.File, error) {
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	file, err := machine.MemoryFile("holdfast-manifest")
	if err != nil {
		return nil, err
	}
	line = append(line, '\n')
	_, err = file.WriteAt(line, 0)
	if err == nil {
		_, err = file.WriteAt(manifest, int64(len(line)))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
