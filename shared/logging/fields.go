package logging

// Names of the fields of log lines. All processes use the same names. A unit is the last
// part of a name.
const (
	Process    = "process"     // name of the process that logs: supervisor, proxy or keeper
	PID        = "pid"         // process id of the process that logs, or of the peer or child in the message
	UID        = "uid"         // user id of a peer
	Version    = "version"     // version of a program
	Protocol   = "protocol"    // range of protocol versions
	Session    = "session"     // id of a session
	Instance   = "instance"    // instance of a session
	Client     = "client"      // name that a client has given itself
	Offset     = "offset"      // output offset
	Bytes      = "bytes"       // number of bytes
	Missed     = "missed"      // number of bytes that a peer did not receive
	Count      = "count"       // number of the objects in the message
	LeftOut    = "left_out"    // number of earlier lines that a Limiter did not log
	Took       = "took_ms"     // duration in milliseconds
	Wait       = "wait_ms"     // pause before the next try in milliseconds
	Path       = "path"        // path of a file or socket
	Program    = "program"     // path of a program
	Code       = "code"        // protocol error code
	ExitCode   = "exit_code"   // exit code of a child
	Signal     = "signal"      // name of a signal
	Reason     = "reason"      // reason for which a session ended
	Kind       = "kind"        // kind of an event or a request
	Security   = "security"    // true if an administrator may want an alarm for the line
	RemoteAddr = "remote_addr" // address of a TCP client
)
