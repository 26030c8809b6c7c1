package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"holdfast/shared/tail"
)

// A Command is an order to the client of a harness. README.md describes the commands.
type Command struct {
	Do        string   `json:"do"`
	Socket    string   `json:"socket,omitempty"`
	URL       string   `json:"url,omitempty"`
	SessionID string   `json:"session_id,omitempty"`
	Argv      []string `json:"argv,omitempty"`
	Instance  string   `json:"instance,omitempty"`
	Offset    *uint64  `json:"offset,omitempty"`
	Writer    string   `json:"writer,omitempty"`
	View      string   `json:"view,omitempty"`
	Cols      int      `json:"cols,omitempty"`
	Rows      int      `json:"rows,omitempty"`
	Data      []byte   `json:"data_b64,omitempty"`
}

// An Event is a report of a harness. README.md describes the events.
type Event struct {
	Event      string   `json:"event"`
	Lacks      []string `json:"lacks,omitempty"`
	Of         string   `json:"of,omitempty"`
	Code       string   `json:"code,omitempty"`
	SessionID  string   `json:"session_id,omitempty"`
	Instance   string   `json:"instance,omitempty"`
	Writer     string   `json:"writer,omitempty"`
	PID        int      `json:"pid,omitempty"`
	Offset     *uint64  `json:"offset,omitempty"`
	Data       []byte   `json:"data_b64,omitempty"`
	Missed     uint64   `json:"missed,omitempty"`
	ScreenOnly bool     `json:"screen_only,omitempty"`
	Cols       int      `json:"cols,omitempty"`
	Rows       int      `json:"rows,omitempty"`
	ExitCode   int      `json:"exit_code,omitempty"`
}

const (
	// maxLine is the longest line of a harness: a frame of the largest size in base64, and its fields.
	maxLine = 2 << 20
	// maxStderr is how many bytes of a harness's standard error are kept.
	maxStderr = 4 << 10
	// endsWithin is how long a harness may take to end after its standard input has ended.
	endsWithin = 2 * time.Second
)

// A Start starts a harness. The harness must end when its standard input ends. wait returns when it has
// ended, with the last lines of its standard error.
type Start func(ctx context.Context) (stdin io.WriteCloser, stdout io.Reader, wait func() string, err error)

// Program returns a Start for a program with its arguments.
func Program(argv ...string) Start {
	return func(ctx context.Context) (io.WriteCloser, io.Reader, func() string, error) {
		ctx, kill := context.WithCancel(ctx)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.WaitDelay = endsWithin
		stderr := &tail.Tail{Max: maxStderr}
		cmd.Stderr = stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			kill()
			return nil, nil, nil, err
		}
		stdout, w := io.Pipe() // Wait closes a StdoutPipe, also if it was not read to its end
		cmd.Stdout = w
		if err := cmd.Start(); err != nil {
			kill()
			return nil, nil, nil, err
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			err := cmd.Wait()
			_ = w.CloseWithError(errors.Join(io.EOF, err))
		}()
		return stdin, stdout, func() string {
			select {
			case <-ended:
			case <-time.After(endsWithin):
			}
			kill()
			_ = stdout.Close() // so that a harness that prints on can end
			<-ended
			return stderr.String()
		}, nil
	}
}

// A harness is a running harness.
type harness struct {
	stdin  io.WriteCloser
	wait   func() string
	events chan *Event // closed when standard output has ended or has an invalid line
	lacks  map[string]bool

	mu  sync.Mutex
	err error // why events was closed
}

// startHarness starts a harness and waits until it is ready.
func startHarness(ctx context.Context, start Start, patience time.Duration) (*harness, error) {
	stdin, stdout, wait, err := start(ctx)
	if err != nil {
		return nil, fmt.Errorf("start the harness: %w", err)
	}
	h := &harness{stdin: stdin, wait: wait, events: make(chan *Event, 256), lacks: make(map[string]bool)}
	go h.read(stdout)
	select {
	case e, ok := <-h.events:
		if !ok || e.Event != "ready" {
			err = errors.New("the first line of the harness is not the event ready")
			break
		}
		for _, feature := range e.Lacks {
			h.lacks[feature] = true
		}
		return h, nil
	case <-time.After(startsWithin + patience):
		err = fmt.Errorf("the harness has not printed the event ready within %v", startsWithin+patience)
	}
	return nil, fmt.Errorf("%w\n%s", err, h.end())
}

// startsWithin is how long a harness may take to start, besides the patience of the suite.
const startsWithin = 10 * time.Second

func (h *harness) read(stdout io.Reader) {
	defer close(h.events)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		e := &Event{}
		if err := json.Unmarshal(lines.Bytes(), e); err != nil {
			h.fail(fmt.Errorf("the harness printed a line that is no event: %.200q", lines.Text()))
			_, _ = io.Copy(io.Discard, stdout) // the harness may block otherwise
			return
		}
		h.events <- e
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		h.fail(err)
	}
}

func (h *harness) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// failure returns why there are no more events.
func (h *harness) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	return errors.New("the harness has ended")
}

func (h *harness) send(c Command) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = h.stdin.Write(append(line, '\n'))
	return err
}

// end ends the harness and returns the last lines of its standard error.
func (h *harness) end() string {
	_ = h.stdin.Close() // fails only if the harness has ended
	go func() {
		for range h.events { // a harness that prints must be read, so that it can end
		}
	}()
	return h.wait()
}
