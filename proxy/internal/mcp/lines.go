package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Codes of JSON-RPC 2.0, section 5.1.
const (
	parseError     = -32700
	invalidRequest = -32600
)

// lastCalls is how long the calls that an agent has made before the end of its input may still take. The SDK cancels them at
// the end, and would leave an input half typed.
const lastCalls = time.Second

// maxLine is the length of the longest line that is read, without its end. The server of the SDK ends at a longer one.
const maxLine = sdk.DefaultMaxLineLength - 1

// maxCalls is how many calls may wait for an answer before lines are read only as fast as the agent reads answers. The server
// of the SDK would keep any number of answers for an agent that does not read.
const maxCalls = 256

// A lineReader reads the lines of an agent that are messages of JSON-RPC. It divides a batch into its messages, and answers
// whatever is no message with an error, because the server of the SDK would end at both.
type lineReader struct {
	io.Closer
	lines     *bufio.Scanner
	isTooLong bool   // the beginning of the present line was dropped
	line      []byte // what Read has not returned yet of the last line, with a line for each message
	out       *lineWriter
}

func newLineReader(in io.ReadCloser, out *lineWriter) *lineReader {
	r := &lineReader{Closer: in, lines: bufio.NewScanner(in), out: out}
	r.lines.Buffer(nil, maxLine+1)
	r.lines.Split(r.split)
	return r
}

// split divides the input into lines as bufio.ScanLines does. It drops the part of a line that fills the buffer.
func (r *lineReader) split(data []byte, isEnd bool) (advance int, line []byte, err error) {
	advance, line, err = bufio.ScanLines(data, isEnd)
	if advance == 0 && len(data) > maxLine {
		r.isTooLong = true
		return len(data), nil, nil
	}
	return advance, line, err
}

func (r *lineReader) Read(p []byte) (int, error) {
	for len(r.line) == 0 {
		if r.out.calls.Load() >= maxCalls {
			r.out.awaitReader()
		}
		if !r.lines.Scan() {
			if err := r.lines.Err(); err != nil {
				return 0, err
			}
			r.out.awaitAnswers(lastCalls)
			return 0, io.EOF
		}
		if r.isTooLong {
			r.isTooLong = false
			if err := r.refuse(invalidRequest, fmt.Errorf("the line is longer than %d bytes", maxLine)); err != nil {
				return 0, err
			}
			continue
		}
		for _, m := range messages(bytes.TrimSpace(r.lines.Bytes())) {
			if code, err := r.check(m); err != nil {
				if err := r.refuse(code, err); err != nil {
					return 0, err
				}
			} else if len(m) > 0 {
				r.line = append(append(r.line, m...), '\n')
			}
		}
	}
	n := copy(p, r.line)
	r.line = r.line[n:]
	return n, nil
}

// refuse answers a line of which no id is known.
func (r *lineReader) refuse(code int, why error) error {
	text, err := json.Marshal(why.Error())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.out, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%s}}`+"\n", code, text)
	return err
}

// messages returns the messages of a batch, or the line itself if it is none, or an empty one.
func messages(line []byte) []json.RawMessage {
	var batch []json.RawMessage
	if json.Unmarshal(line, &batch) != nil || len(batch) == 0 {
		return []json.RawMessage{line}
	}
	return batch
}

// check returns the error of a line that is no message, with its code, and counts a call.
func (r *lineReader) check(line []byte) (code int, err error) {
	if len(line) == 0 {
		return 0, nil
	}
	var raw json.RawMessage
	if err := json.Unmarshal(line, &raw); err != nil {
		return parseError, fmt.Errorf("the line is not JSON: %w", err)
	}
	m, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		return invalidRequest, fmt.Errorf("the line is not a message of JSON-RPC 2.0: %w", err)
	}
	if call, ok := m.(*jsonrpc.Request); ok && call.IsCall() {
		r.out.calls.Add(1)
	}
	return 0, nil
}

// A lineWriter lets several goroutines write whole lines, and counts the calls that are not answered.
type lineWriter struct {
	mu sync.Mutex
	io.WriteCloser
	calls    atomic.Int64
	answered chan struct{} // has an element after an answer
}

func newLineWriter(out io.WriteCloser) *lineWriter {
	return &lineWriter{WriteCloser: out, answered: make(chan struct{}, 1)}
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.WriteCloser.Write(p)
	if m, wrong := jsonrpc.DecodeMessage(p); wrong == nil {
		if answer, ok := m.(*jsonrpc.Response); ok && answer.ID.IsValid() {
			w.calls.Add(-1)
			select {
			case w.answered <- struct{}{}:
			default:
			}
		}
	}
	return n, err
}

// awaitReader waits a moment for an answer, and then until the agent has read what is being written. It waits for no certain
// answer, because the SDK does not answer each of several calls with the same id.
func (w *lineWriter) awaitReader() {
	late := time.NewTimer(10 * time.Millisecond)
	defer late.Stop()
	select {
	case <-w.answered:
	case <-late.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
}

// awaitAnswers returns when all calls are answered, or when the limit has passed.
func (w *lineWriter) awaitAnswers(limit time.Duration) {
	late := time.NewTimer(limit)
	defer late.Stop()
	for w.calls.Load() > 0 {
		select {
		case <-w.answered:
		case <-late.C:
			return
		}
	}
}
