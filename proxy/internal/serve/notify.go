package serve

import (
	"fmt"
	"os"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
)

// notifyReady notifies a service manager that the service is ready, and that this process is its
// main process now.
func notifyReady(log zerolog.Logger) {
	if _, err := daemon.SdNotify(false, fmt.Sprintf("%s\nMAINPID=%d", daemon.SdNotifyReady, os.Getpid())); err != nil {
		log.Warn().Err(err).Msg("service manager not notified")
	}
}
