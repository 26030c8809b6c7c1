package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"holdfast/protocol"
)

const (
	// maxRequests bounds the requests of the agent that are answered at the same time. Most of them wait for the
	// end of a command.
	maxRequests = 1024
	// maxCwds bounds the conversations of which the directory is known. If there are more, one of them is
	// forgotten, and its terminals begin in Options.Cwd.
	maxCwds = 1024
	// maxCwd bounds the bytes of such a directory, and of the ids under which it is known. It is the longest path of Linux.
	maxCwd = 4096
)

// Codes of errors, of JSON-RPC and of ACP.
const (
	codeInvalidRequest = -32600
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeNotFound       = -32002
	codeCancelled      = -32800
)

// object is a JSON object whose fields are passed on as they are.
type object map[string]json.RawMessage

// parseObject returns nil if raw is not a JSON object.
func parseObject(raw []byte) object {
	var o object
	if json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return o
}

// text returns a field that is a string, or "".
func (o object) text(name string) string {
	var s string
	if json.Unmarshal(o[name], &s) != nil {
		return ""
	}
	return s
}

// with returns o with a field that has another value.
func (o object) with(name string, value any) object {
	raw, _ := json.Marshal(value) // only parts of messages that were parsed, and texts
	o[name] = raw
	return o
}

// id returns the id of a request or an answer as JSON, or "" if there is none.
func (o object) id() string {
	raw := bytes.TrimSpace(o["id"])
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	return string(raw)
}

// line returns o as a message.
func (o object) line() []byte {
	raw, _ := json.Marshal(o) // its fields are JSON
	return append(raw, '\n')
}

// A bridge has the state between one editor and one agent.
type bridge struct {
	Options
	ctx      context.Context // done when the agent has ended
	toEditor *lineWriter
	toAgent  *lineWriter
	requests sync.WaitGroup // goroutines that answer the agent or watch a terminal

	mu        sync.Mutex
	inFlight  map[string]context.CancelFunc // by the id of the agent's request, as JSON
	answering int                           // requests whose answers are not sent yet; at most maxRequests
	cwds      map[string]string             // directory of each conversation, by sessionId; at most maxCwds
	newCwds   map[string]string             // directory of each request of the editor that has one, by its id; at most maxCwds
	terminals map[protocol.SessionID]*terminal
	released  map[protocol.SessionID]*terminal // at most maxTerminals
	kept      int                              // bytes of the outputs that terminals keep
}

func newBridge(ctx context.Context, o Options) *bridge {
	return &bridge{
		Options: o, ctx: ctx, toEditor: &lineWriter{w: o.ToEditor}, toAgent: &lineWriter{w: o.ToAgent},
		inFlight: map[string]context.CancelFunc{}, cwds: map[string]string{}, newCwds: map[string]string{},
		terminals: map[protocol.SessionID]*terminal{}, released: map[protocol.SessionID]*terminal{},
	}
}

// putCwd notes a directory under an id in a map of at most maxCwds, unless there is no id, or one of them is too long.
func putCwd(m map[string]string, id, cwd string) {
	if id == "" || max(len(id), len(cwd)) > maxCwd {
		return
	}
	for other := range m {
		if len(m) < maxCwds {
			break
		}
		delete(m, other)
	}
	m[id] = cwd
}

// fromEditor returns the message that the agent gets in place of a message of the editor.
func (b *bridge) fromEditor(line []byte) []byte {
	m := parseObject(line)
	params := parseObject(m["params"])
	if params == nil {
		return line
	}
	if m.text("method") == "initialize" {
		return addTerminals(m, params, line)
	}
	if cwd := params.text("cwd"); cwd != "" { // session/new, session/load and their relatives
		b.mu.Lock()
		defer b.mu.Unlock()
		putCwd(b.cwds, params.text("sessionId"), cwd)
		putCwd(b.newCwds, m.id(), cwd)
	}
	return line
}

// addTerminals returns initialize with the capability terminal. From version 2 on, ACP has no terminals of the
// editor, because agents run commands themselves.
func addTerminals(m, params object, line []byte) []byte {
	var version int
	if err := json.Unmarshal(params["protocolVersion"], &version); err != nil || version > 1 {
		return line
	}
	capabilities := parseObject(params["clientCapabilities"])
	if capabilities == nil {
		capabilities = object{}
	}
	return m.with("params", params.with("clientCapabilities", capabilities.with("terminal", true))).line()
}

// fromAgent returns the message that the editor gets in place of a message of the agent, or nil if it gets none.
func (b *bridge) fromAgent(line []byte) []byte {
	m := parseObject(line)
	switch method := m.text("method"); method {
	case "":
		b.noteCwd(m)
	case "$/cancel_request":
		if b.cancel(string(bytes.TrimSpace(parseObject(m["params"])["requestId"]))) {
			return nil
		}
	case "session/update":
		return b.withText(m, "update", line)
	case "session/request_permission":
		return b.withText(m, "toolCall", line)
	default:
		if answer := answers[method]; answer != nil && m.id() != "" {
			b.begin(m, answer)
			return nil
		}
	}
	return line
}

// noteCwd notes the directory of the conversation that an answer of the agent has made.
func (b *bridge) noteCwd(answer object) {
	id := answer.id()
	b.mu.Lock()
	defer b.mu.Unlock()
	cwd, ok := b.newCwds[id]
	if !ok {
		return
	}
	delete(b.newCwds, id)
	putCwd(b.cwds, parseObject(answer["result"]).text("sessionId"), cwd)
}

// cancel cancels a request that is being answered, and reports whether there is one with this id.
func (b *bridge) cancel(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	cancel := b.inFlight[id]
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}

// begin answers a request of the agent in a goroutine of its own.
func (b *bridge) begin(m object, answer func(context.Context, *bridge, json.RawMessage) (any, error)) {
	id := m.id()
	b.mu.Lock()
	_, again := b.inFlight[id]
	full := b.answering >= maxRequests
	ctx, cancel := context.WithCancel(b.ctx)
	if !again && !full {
		b.inFlight[id] = cancel
		b.answering++
	}
	b.mu.Unlock()
	if again || full {
		cancel()
		err := invalidRequest("a request with this id is being answered")
		if full {
			err = invalidRequest(fmt.Sprintf("%d requests for terminals are being answered, which is the most", maxRequests))
		}
		b.reply(id, nil, err)
		return
	}
	b.requests.Go(func() {
		result, err := answer(ctx, b, m["params"])
		if ctx.Err() != nil && err != nil {
			err = &rpcError{Code: codeCancelled, Message: "the request was cancelled"}
		}
		cancel()
		b.mu.Lock()
		delete(b.inFlight, id) // before the answer, because the agent may use the id again after it
		b.mu.Unlock()
		b.reply(id, result, err)
		b.mu.Lock()
		b.answering-- // after the answer, so that there is a limit also for an agent that does not read
		b.mu.Unlock()
	})
}

// reply sends an answer to the agent.
func (b *bridge) reply(id string, result any, err error) {
	m := object{"jsonrpc": json.RawMessage(`"2.0"`), "id": json.RawMessage(id)}
	if err != nil {
		m = m.with("error", asRPC(err))
	} else {
		m = m.with("result", result)
	}
	_ = b.toAgent.write(m.line()) // if it fails, the agent has ended, which Run notices
}

// An rpcError is an error of JSON-RPC.
type rpcError struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data,omitempty"`
}

// Error implements error.
func (e *rpcError) Error() string { return e.Message }

func invalidRequest(text string) *rpcError { return &rpcError{Code: codeInvalidRequest, Message: text} }

// asRPC returns an error for the agent. Its data has the code of Holdfast, which does not change.
func asRPC(err error) *rpcError {
	var rpc *rpcError
	if errors.As(err, &rpc) {
		return rpc
	}
	e := protocol.AsError(err)
	code := codeInternal
	switch e.Code {
	case protocol.CodeInvalidArgument, protocol.CodeSpawnFailed:
		code = codeInvalidParams
	case protocol.CodeSessionNotFound:
		code = codeNotFound
	}
	return &rpcError{Code: code, Message: e.Message, Data: map[string]any{"code": e.Code}}
}

// withText returns a message in which the terminals of the tool call in a field of its parameters are replaced by
// text, or the line if there are none.
func (b *bridge) withText(m object, field string, line []byte) []byte {
	params := parseObject(m["params"])
	call := parseObject(params[field])
	var content []json.RawMessage
	if json.Unmarshal(call["content"], &content) != nil {
		return line
	}
	texts, found := b.textContent(params.text("sessionId"), call.text("toolCallId"), content)
	if !found {
		return line
	}
	return m.with("params", params.with(field, call.with("content", texts))).line()
}
