package keeper

import (
	"os"
	"os/signal"
)

// ignoreUntilExec makes the kernel ignore signals, and returns the function with which signals
// arrive at c again.
func ignoreUntilExec(c chan<- os.Signal, signals []os.Signal) (undo func()) {
	signal.Ignore(signals...)
	return func() { signal.Notify(c, signals...) }
}
