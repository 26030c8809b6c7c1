//go:build faults

package serve

import (
	"os"
	"strings"
	"syscall"
	"time"
)

// fault fails at the step that $HOLDFAST_FAULT names, in one of the ways STEP=kill, STEP=stop,
// STEP=hang and STEP=panic. Only builds for tests have it.
func fault(step string) {
	at, how, _ := strings.Cut(os.Getenv("HOLDFAST_FAULT"), "=")
	if at != step {
		return
	}
	switch how {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(10 * time.Millisecond) // until each thread has stopped
	case "hang":
		select {}
	case "panic":
		panic("a fault at " + step)
	}
}

// altered returns a changed s if $HOLDFAST_FAULT is STEP=alter.
func altered(step, s string) string {
	if os.Getenv("HOLDFAST_FAULT") == step+"=alter" {
		return s + "'"
	}
	return s
}
