//go:build faults

package serve

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
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
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-continued // because the signal may stop this thread only after a while
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
