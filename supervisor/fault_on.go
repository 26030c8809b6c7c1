//go:build faults

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fault fails at a step as the file "fault" in $HOLDFAST_DIR says, by lines STEP=HOW. HOW is
// exit, panic, kill, stop or hang, or panic1s, a panic a second later. No build but
// that of the tests has this. It is a file, so that a program that is started again
// later can be told something else.
func fault(step string) {
	if step == "main" && (len(os.Args) < 2 || os.Args[1] != "run" || os.Getenv("HOLDFAST_INHERIT_TRIAL") != "") {
		return // of a supervisor alone, and not on trial
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
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(10 * time.Millisecond) // until each thread has stopped
	case "hang":
		select {}
	case "panic1s":
		time.AfterFunc(time.Second, func() { panic("a fault a second after " + step) })
	}
}
