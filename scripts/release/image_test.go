//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// patience is the longest time in which a gate must serve or end.
const patience = time.Minute

// An image is the image of a gate, with the fields of its configuration that a container needs.
type image struct {
	Env, Entrypoint []string
	User            string
	StopSignal      string
	WorkingDir      string
	Volumes         map[string]struct{}
	ExposedPorts    map[string]struct{}
	Healthcheck     struct{ Test []string }

	root string // directory with the files of the image
}

// user is the uid and gid of the image.
const user = 65532

// checkImage builds the image of a gate from an unpacked archive, and runs it with the files, the user and
// the environment of a container. The volume must belong to the user and contain all files of the gate. The
// health check must report whether the gate serves, and the stop signal must end the gate.
func checkImage(t *testing.T, archive string) {
	program(t, "buildah")
	if os.Getuid() != 0 {
		t.Skip("only root may change its root directory")
	}
	i := buildImage(t, archive)
	if _, isVolume := i.Volumes[i.WorkingDir]; !isVolume || len(i.Volumes) != 1 || len(i.ExposedPorts) != 1 || i.StopSignal != "SIGTERM" || i.User != "65532:65532" {
		t.Errorf("the configuration of the image is %+v", i)
	}
	i.serve(t)
	text, err := i.command(t, "/proxy", "gate", "client-token").Output()
	if err != nil || !strings.HasPrefix(string(text), "holdfast-client/gate.example:7684/") {
		t.Errorf("client-token prints %.60q, %v", text, err)
	}
	i.serve(t)
	if again, err := i.command(t, "/proxy", "gate", "client-token").Output(); err != nil || string(again) != string(text) {
		t.Errorf("after a restart client-token prints %.60q, %v", again, err)
	}
}

// serve runs a gate, waits until it is healthy, and ends it.
func (i *image) serve(t *testing.T) {
	t.Helper()
	if i.isHealthy(t) {
		t.Error("the health check succeeds although no gate runs")
	}
	gate := i.command(t, append(i.Entrypoint, "--listen", "127.0.0.1:0", "--address", "gate.example:7684")...)
	log := &strings.Builder{}
	gate.Stderr = log
	testkit.Must(t, gate.Start())
	ended := make(chan error, 1)
	go func() { ended <- gate.Wait() }()
	testkit.Eventually(t, patience, func() bool { return len(ended) > 0 || i.isHealthy(t) }, "the gate serves")
	if err := gate.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := testkit.Within(t, patience, "the gate ends", ended); err != nil {
		t.Errorf("the gate exited with %v:\n%s", err, log)
	}
}

func (i *image) isHealthy(t *testing.T) bool {
	return i.command(t, i.Healthcheck.Test[1:]...).Run() == nil // the first word is CMD
}

// command returns a command that runs in the image.
func (i *image) command(t *testing.T, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Path, cmd.Err = argv[0], nil // a path in the image
	cmd.Env, cmd.Dir = i.Env, i.WorkingDir
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd
}

// buildImage builds the image, and mounts its files until the test ends.
func buildImage(t *testing.T, archive string) *image {
	t.Helper()
	dir := t.TempDir()
	buildah := func(args ...string) string {
		all := append([]string{"--root", dir + "/root", "--runroot", dir + "/run", "--storage-driver", "vfs"}, args...)
		return strings.TrimSpace(output(t, "", "buildah", all...))
	}
	buildah("bud", "--format", "docker", "--isolation", "chroot", "--tag", "gate", archive)
	var about struct {
		Docker struct{ Config image }
	}
	testkit.Must(t, json.Unmarshal([]byte(buildah("inspect", "--type", "image", "gate")), &about))
	i := &about.Docker.Config
	container := buildah("from", "gate")
	i.root = buildah("mount", container)
	t.Cleanup(func() {
		for _, args := range [][]string{{"umount", container}, {"rm", container}} { // otherwise the directories stay
			_ = exec.Command("buildah", append([]string{"--root", dir + "/root", "--runroot", dir + "/run", "--storage-driver", "vfs"}, args...)...).Run()
		}
	})
	return i
}
