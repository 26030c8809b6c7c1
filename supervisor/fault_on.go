//go:build faults

package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fault fails at a step if the file "fault" in $HOLDFAST_DIR has a line STEP=HOW for it. HOW is
// exit, panic, kill, stop, hang, or panic1s, which is a panic after one second. Only the build
// for tests has this function. It reads a file and not the environment, so that a test can
// change the fault for a program that is started later.
func fault(step string) {
	if step == "main" && (len(os.Args) < 2 || os.Args[1] != "run" || os.Getenv("HOLDFAST_INHERIT_TRIAL") != "") {
		return // only a supervisor that is not on trial fails here
	}
	text, err := os.ReadFile(filepath.Join(os.Getenv("HOLDFAST_DIR"), "fault"))
	if err != nil {
		return
	}
	for _, line := range strings.Fields(string(text)) {
		at, how, _ := strings.Cut(line, "=")
		if at == step {
			fail(step, how)
		}
	}
}

func fail(step, how string) {
	switch how {
	case "exit":
		os.Exit(3)
	case "panic":
		panic("a fault at " + step)
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "stop":
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-continued // because the signal may stop this thread only after a while
	case "hang":
		select {}
	case "panic1s":
		time.AfterFunc(time.Second, func() { panic("a fault a second after " + step) })
	}
}
