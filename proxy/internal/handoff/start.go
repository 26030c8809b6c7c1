package handoff

import (
	"os"

	"holdfast/protocol"
)

// ReportEnv is the environment variable with the path of the file, usually a named pipe, in which a
// successor reports its progress. It is not a flag, because an older program would refuse an unknown flag.
const ReportEnv = "HOLDFAST_HANDOFF_REPORT"

// Progress is one step of a handoff, as a line of JSON in the report of the successor.
type Progress struct {
	Step string  `json:"step"`  // linked, offered, compared, moved, serving; looked for a dry run; failed
	AtMS float64 `json:"at_ms"` // since the successor began

	PID     int    `json:"pid,omitempty"`     // of the supervisor (linked), the old proxy (offered) or the new one (serving)
	Version string `json:"version,omitempty"` // of the same process

	Sessions int `json:"sessions,omitempty"`  // sessions of which both proxies see the same output,
	ByOutput int `json:"by_output,omitempty"` // of them those compared by a part of their output,
	Unseen   int `json:"unseen,omitempty"`    // sessions that could not be compared,
	Skipped  int `json:"skipped,omitempty"`   // and those outside the sample

	Connections   int     `json:"connections,omitempty"` // connections that were moved
	Closed        int     `json:"closed,omitempty"`      // connections that could not be moved
	StallMedianMS float64 `json:"stall_median_ms,omitempty"`
	StallMaxMS    float64 `json:"stall_max_ms,omitempty"`

	Error    string        `json:"error,omitempty"`
	Code     protocol.Code `json:"code,omitempty"`
	ExitCode int           `json:"exit_code,omitempty"` // of the new proxy that has failed
}

// notifySocket is the environment variable with the socket of a service manager; see sd_notify(3).
const notifySocket = "NOTIFY_SOCKET"

// NotifyEnv returns the environment variable with which a successor can notify the service manager
// of this process that it is the new main process, or "" if no service manager waits for that.
func NotifyEnv() string {
	path := os.Getenv(notifySocket)
	if path == "" {
		return ""
	}
	return notifySocket + "=" + path
}
