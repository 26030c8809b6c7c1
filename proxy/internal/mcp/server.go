// Package mcp lets programs with language models ("agents") use sessions, by the Model Context Protocol: it
// offers tools that start, read, drive and end sessions, and the screen of each session as a resource.
// The protocol is that of the SDK github.com/modelcontextprotocol/go-sdk.
//
// Invariant: the text of a session in an answer has at most the number of bytes that the caller permits,
// and at most MaxBytes. An answer says that a session waits for input only if its shell or the system has
// reported that; otherwise it says "may", and names the evidence.
//
// Not here: requests to the proxy (package proxy/client), and the command (package cli).
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/version"
)

const (
	// DefaultBytes is the size of the text of a session in an answer if the caller does not name one.
	DefaultBytes = 4 << 10
	// MaxBytes is the largest size of the text of a session in an answer.
	MaxBytes = 64 << 10
	// defaultWait is how long a tool waits if the caller does not name a time. Callers give up after about
	// a minute.
	defaultWait = 30 * time.Second
	// maxWait is the longest time that a tool waits.
	maxWait = 10 * time.Minute
	// maxReaders bounds the sessions of which the server knows the position of the agent. If there are more,
	// it forgets one of them, whose next reading then begins with the whole screen.
	maxReaders = 1024
	// originator is the originator of the sessions that the tool run starts.
	originator = "mcp"
)

// Control tells which sessions an agent may send input to and end.
type Control string

// The values of Control.
const (
	ControlOwn  Control = "own"  // sessions that the tool run of any such server has started
	ControlAll  Control = "all"  // all sessions
	ControlNone Control = "none" // none, and the agent can start none
)

// Options configure a server.
type Options struct {
	Client  *client.Client
	Control Control
	// Cwd is the directory in which sessions are started if the caller does not name one. "" is the home
	// directory.
	Cwd string
	In  io.ReadCloser // messages of the agent, as lines of JSON
	Out io.WriteCloser
}

// Run serves an agent until In ends or ctx is done. At the end of In it completes the calls that take no longer than lastCalls.
func Run(ctx context.Context, o Options) error {
	out := newLineWriter(o.Out)
	err := newServer(o).Run(ctx, &sdk.IOTransport{Reader: newLineReader(o.In, out), Writer: out})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// instructions tell a model how the tools belong together, and describe the arguments that several tools have. The
// descriptions of the tools do not repeat them, because a model pays for each token.
const instructions = "Each session is a terminal that continues whatever happens to this connection, and that people can see and use, too. " +
	"Answers begin with the state of the session. “may” marks a guess; the system or the shell has reported all else. " +
	"max_bytes limits the text of an answer (default 4096, at most 65536; the newest lines are kept), and timeout_s the wait (default 30, at most 600; the session continues)."

// A reading is the position of the agent in a session.
type reading struct {
	mark   []byte // of the changes that the agent has read; nil if it has read none
	next   uint64 // number after that of the last line that it has read
	seen   seen
	prompt string // text before the cursor at that time
	bells  int    // bells of the session that the agent knows of
}

// A server serves one agent.
type server struct {
	Options

	mu   sync.Mutex
	read map[protocol.SessionID]reading // at most maxReaders
}

func newServer(o Options) *sdk.Server {
	s := &server{Options: o, read: make(map[protocol.SessionID]reading)}
	m := sdk.NewServer(&sdk.Implementation{Name: "holdfast", Title: "Holdfast: terminals that outlive everything around them", Version: version.String()},
		&sdk.ServerOptions{Instructions: instructions, Capabilities: &sdk.ServerCapabilities{}})
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(bool)}
	add(m, &sdk.Tool{Name: "list", Description: "List the sessions with their states.", Annotations: reads}, s.list)
	add(m, &sdk.Tool{Name: "read", Description: "Answer what is new in a session since the last answer about it.", Annotations: reads}, s.readNew)
	add(m, &sdk.Tool{Name: "screen", Description: "Answer the whole screen of a session. Use read to follow it.", Annotations: reads}, s.screen)
	add(m, &sdk.Tool{Name: "history", Description: "Answer earlier lines of a session, or the output of an earlier command if its shell reports its commands.", Annotations: reads}, s.history)
	add(m, &sdk.Tool{Name: "wait", Description: "Wait for the end of a session, or for text, prompt or idle_ms, and answer what is new.", Annotations: reads}, s.wait)
	if o.Control != ControlNone {
		add(m, &sdk.Tool{Name: "run", Description: "Run a command line in a new session, and wait for its end. If it takes longer than timeout_s, it continues: use read, wait, send."}, s.run)
		add(m, &sdk.Tool{Name: "send", Description: "Type into a session, wait for the effect, and answer what is new."}, s.send)
		add(m, &sdk.Tool{Name: "end", Description: "End a session: hang up, and kill what continues after 250 ms."}, s.end)
	}
	m.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "screen", Title: "Screen of a session", MIMEType: "text/plain", URITemplate: screenURI + "{id}",
		Description: "The present screen of a session as text.",
	}, s.screenResource)
	return m
}

// add adds a tool whose answer is text.
func add[In any](m *sdk.Server, t *sdk.Tool, tool func(context.Context, In) (string, error)) {
	sdk.AddTool(m, t, func(ctx context.Context, _ *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
		text, err := tool(ctx, in)
		if err != nil {
			return nil, nil, err
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil, nil
	})
}

// reading returns the position of the agent in a session.
func (s *server) reading(id protocol.SessionID) reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read[id]
}

// setReading notes the position of the agent in a session.
func (s *server) setReading(id protocol.SessionID, r reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.read {
		if len(s.read) < maxReaders {
			break
		}
		delete(s.read, other)
	}
	s.read[id] = r
}

// screenURI begins the URIs of screens.
const screenURI = "holdfast://screen/"

func (s *server) screenResource(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	id := protocol.SessionID(r.Params.URI[len(screenURI):])
	if err := id.Validate(); err != nil {
		return nil, sdk.ResourceNotFoundError(r.Params.URI)
	}
	text, err := s.screen(ctx, screenInput{Session: string(id), MaxBytes: MaxBytes})
	if protocol.CodeOf(err) == protocol.CodeSessionNotFound {
		return nil, sdk.ResourceNotFoundError(r.Params.URI)
	}
	if err != nil {
		return nil, err
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: "text/plain", Text: text}}}, nil
}

// encoded returns a text as JSON, so that its end and its spaces are visible. It leaves <, > and & as they are, because
// the text is not for HTML and an agent pays for each token.
func encoded(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string can always be encoded
	return strings.TrimSuffix(b.String(), "\n")
}
