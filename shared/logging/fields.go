package logging

// Names of fields, the same in every line of both processes. Units come last.
const (
	Process    = "process"     // supervisor, proxy, keeper
	PID        = "pid"         // whose: the process's that logs, or the peer's or child's the line is about
	UID        = "uid"         // of a peer
	Version    = "version"     // of a program
	Protocol   = "protocol"    // a range of protocol versions
	Session    = "session"     // a session's id
	Instance   = "instance"    // which life of it
	Attachment = "attachment"  // its number on a connection
	Writer     = "writer"      // whose input
	Client     = "client"      // a client's name for itself
	Conn       = "conn"        // a connection's number in this process
	Offset     = "offset"      // an output offset
	Bytes      = "bytes"       // how many
	Missed     = "missed"      // how many bytes were lost to somebody
	Count      = "count"       // how many of what the message names
	LeftOut    = "left_out"    // how many lines like this one were not logged before it
	Took       = "took_ms"     // how long it took
	Wait       = "wait_ms"     // how long until the next try
	Path       = "path"        // of a file or socket
	Program    = "program"     // path of a program
	Code       = "code"        // a protocol error code
	ExitCode   = "exit_code"   // a child's
	Signal     = "signal"      // a signal's name
	Reason     = "reason"      // why a session ended
	Kind       = "kind"        // of an event or a request
	Security   = "security"    // true on what an administrator may want an alarm for
	RemoteAddr = "remote_addr" // of a TCP client
)
