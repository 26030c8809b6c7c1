package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Codes of JSON-RPC 2.0, section 5.1.
const (
	parseError     = -32700
	invalidRequest = -32600
)

// A lineReader reads the lines of an agent that are messages of JSON-RPC or batches of them. It answers each other line with an
// error, because the server of the SDK would end at it.
type lineReader struct {
	io.Closer
	lines *bufio.Scanner
	line  []byte // what Read has not returned yet of the last line
	out   io.Writer
}

func newLineReader(in io.ReadCloser, out io.Writer) *lineReader {
	r := &lineReader{Closer: in, lines: bufio.NewScanner(in), out: out}
	r.lines.Buffer(nil, sdk.DefaultMaxLineLength)
	return r
}

func (r *lineReader) Read(p []byte) (int, error) {
	for len(r.line) == 0 {
		if !r.lines.Scan() {
			if err := r.lines.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		line := bytes.TrimSpace(r.lines.Bytes())
		code, err := check(line)
		if err != nil {
			if err := r.refuse(code, err); err != nil {
				return 0, err
			}
			continue
		}
		if len(line) > 0 {
			r.line = append(line, '\n')
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

// check returns the error of a line that is no message and no batch, with its code.
func check(line []byte) (code int, err error) {
	if len(line) == 0 {
		return 0, nil
	}
	var raw json.RawMessage
	if err := json.Unmarshal(line, &raw); err != nil {
		return parseError, fmt.Errorf("the line is not JSON: %w", err)
	}
	if line[0] == '[' {
		return 0, nil
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		return invalidRequest, fmt.Errorf("the line is not a message of JSON-RPC 2.0: %w", err)
	}
	return 0, nil
}

// A lineWriter lets several goroutines write whole lines.
type lineWriter struct {
	mu sync.Mutex
	io.WriteCloser
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.WriteCloser.Write(p)
}
