package machine

import (
	"os"
	"os/signal"
	"syscall"
)

// SurviveBrokenPipe prevents the end of this process by a write to its standard output or standard error if that is a pipe
// that nobody reads any more. The handler does nothing, and children do not inherit it.
func SurviveBrokenPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
