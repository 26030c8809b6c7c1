package serve

import (
	"fmt"
	"os"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
)

// notifySocket is the environment variable with the socket of a service manager; see sd_notify(3).
const notifySocket = "NOTIFY_SOCKET"

// notifyReady notifies a service manager that the service is ready, and that this process is its
// main process now.
func notifyReady(log zerolog.Logger) {
	if _, err := daemon.SdNotify(false, fmt.Sprintf("%s\nMAINPID=%d", daemon.SdNotifyReady, os.Getpid())); err != nil {
		log.Warn().Err(err).Msg("service manager not notified")
	}
}

// NotifyEnv returns the environment variable with which a successor can notify the service manager
// of this process that it is the new main process, or "" if no service manager waits for that.
func NotifyEnv() string {
	path := os.Getenv(notifySocket)
	if path == "" {
		return ""
	}
	return notifySocket + "=" + path
}
