package serve

import (
	"fmt"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
)

// notifyReady notifies a service manager that the service is ready, and that the process with the
// given pid is its main process now.
func notifyReady(pid int, log zerolog.Logger) {
	if _, err := daemon.SdNotify(false, fmt.Sprintf("%s\nMAINPID=%d", daemon.SdNotifyReady, pid)); err != nil {
		log.Warn().Err(err).Msg("service manager not notified")
	}
}
