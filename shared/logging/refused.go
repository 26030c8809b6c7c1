package logging

import "github.com/rs/zerolog"

// Refused logs that a connection was refused before a byte of it was read.
func Refused(log zerolog.Logger, uid, pid int, err error) {
	log.Warn().Bool(Security, true).Int(UID, uid).Int(PID, pid).Err(err).Msg("connection refused")
}
