package logging

import "github.com/rs/zerolog"

// Refuser returns a function that logs that a connection was refused before a byte
// of it was read. It logs a bounded number of them (Limiter).
func Refuser(log zerolog.Logger) func(uid, pid int, err error) {
	limit := &Limiter{}
	return func(uid, pid int, err error) {
		limit.Of(log).Warn().Bool(Security, true).Int(UID, uid).Int(PID, pid).Err(err).Msg("connection refused")
	}
}
