package main

import (
	"fmt"
	"os"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
)

// notifySocket names the socket of a service manager that wants to be told; see
// sd_notify(3).
const notifySocket = "NOTIFY_SOCKET"

// notifyReady tells a service manager, where one started us or the proxy before
// us, that the service runs and that this is its main process now.
func notifyReady(log zerolog.Logger) {
	if _, err := daemon.SdNotify(false, fmt.Sprintf("%s\nMAINPID=%d", daemon.SdNotifyReady, os.Getpid())); err != nil {
		log.Warn().Err(err).Msg("the service manager cannot be told")
	}
}

// managed reports whether a service manager wants to be told of a new process.
func managed() bool { return os.Getenv(notifySocket) != "" }
