package logging

import "github.com/rs/zerolog"

// Refuser returns a function that logs the refusal of a connection. A Limiter limits the
// number of lines.
func Refuser(log zerolog.Logger) func(uid, pid int, err error) {
	limit := &Limiter{}
	return func(uid, pid int, err error) {
		limit.Of(log).Warn().Bool(Security, true).Int(UID, uid).Int(PID, pid).Err(err).Msg("connection refused")
	}
}
