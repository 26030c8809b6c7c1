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

// Inherited returns what this program was left: the manifest, and the files in
// the order in which they were given to Exec. ok is false for one that was started
// as any other. The files are close-on-exec again, and the environment says
// nothing of all this any more.
func Inherited() (manifest []byte, files []*os.File, ok bool, err error) {
	return inherited(inheritEnv)
}

// OnTrial returns the manifest that this program is to say about, by Passed,
// whether it can go on with it. ok is false for one that is not on trial.
func OnTrial() (manifest []byte, ok bool, err error) {
	manifest, _, ok, err = inherited(trialEnv)
	return manifest, ok, err
}

func inherited(env string) (manifest []byte, files []*os.File, ok bool, err error) {
	value, ok := os.LookupEnv(env)
	if !ok {
		return nil, nil, false, nil
	}
	if err := os.Unsetenv(env); err != nil {
		return nil, nil, true, err
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, nil, true, fmt.Errorf("%s=%q is no descriptor", env, value)
	}
	memory := adopt(fd, "manifest")
	defer memory.Close()
	all, err := io.ReadAll(io.LimitReader(io.NewSectionReader(memory, 0, maxManifest), maxManifest))
	if err != nil {
		return nil, nil, true, fmt.Errorf("manifest: %w", err)
	}
	line, manifest, _ := bytes.Cut(all, []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, nil, true, fmt.Errorf("manifest: %w", err)
	}
	for _, fd := range h.Files {
		files = append(files, adopt(fd, "inherited"))
	}
	return manifest, files, true, nil
}

func adopt(fd int, name string) *os.File {
	closeOnExecAgain(fd)
	return os.NewFile(uintptr(fd), name)
}

// memoryFile is a file that holds a manifest.
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
