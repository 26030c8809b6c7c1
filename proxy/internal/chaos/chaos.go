// Package chaos disturbs a daemon on demand, and judges whether an app's client lost, repeated or invented a byte
// meanwhile. It is for the tests of apps; proxy chaos is its command.
//
//	app ──▶ relay ──▶ proxy ──▶ supervisor ──▶ probe, a session of known output
//	 │                                           │
//	 └─────── reports (JSON lines) ──▶ verdict ◀─┘ files of the probe
//
// The app attaches to each probe through the relay, types into it, and reports what it typed and received and how the
// session ended. The probe stores the bytes that arrived, and its output and exit code are known beforehand.
//
// Invariant: two of the three processes that serve live at every moment, because a fault ends only when all three
// serve again. Sessions are lost only if supervisor and keeper die together.
//
// Not here: the command, and the choice of the directory (package operate).
package chaos

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

const (
	// patience is how long an event may take that must happen. It is long because the machine may be busy.
	patience = time.Minute
	// maxPause is the longest time between two faults of a run.
	maxPause = 500 * time.Millisecond
	// maxSlow is the longest time for which connections are slow.
	maxSlow = time.Second
	// maxLine is the length of the longest line that an app may report, in bytes.
	maxLine = 4 << 20
	// stopKey is the key at which a probe exits: Ctrl-D.
	stopKey = "\x04"
)

// Options select the disturbances.
type Options struct {
	Client   *client.Client // connected with the proxy, and not through the relay; it starts a proxy that has died
	Relay    *Relay         // the app connects here; nil if there is no app
	RelayDir string         // the directory of the relay's socket, for the app
	Proxy    string         // the program proxy: it makes handoffs, and is the probes
	Args     []string       // arguments that name the daemon to that program
	Seed     uint64         // determines the faults, their pauses, and the output and exit codes of the probes
	Faults   []string       // kinds of faults
	Sessions int            // number of probes
	In       io.Reader      // lines of the app
	Out      io.Writer      // lines for the app; the last one has the verdict

	// Last is how long faults are made. They are made at least until each kind came once. If it is 0, only the faults
	// that the app asks for are made, until it reports "end".
	Last time.Duration
}

// A report is a line of the app. Each field is a report of its own.
type report struct {
	Session  protocol.SessionID `json:"session_id,omitempty"`
	Typed    string             `json:"typed,omitempty"`    // keys that are typed next
	Received []byte             `json:"received,omitempty"` // output that has arrived, in base64
	ExitCode *int               `json:"exit_code,omitempty"`
	Fault    string             `json:"fault,omitempty"` // a fault that is to be made now
	End      bool               `json:"end,omitempty"`   // make no more faults
}

// A line is a line for the app. One field is set.
type line struct {
	Begin   *Begin             `json:"begin,omitempty"`
	Stop    protocol.SessionID `json:"stop,omitempty"` // type the stop key into this session, and nothing more
	Done    string             `json:"done,omitempty"` // the fault that the app asked for has been made
	Verdict *Verdict           `json:"verdict,omitempty"`
}

// Begin tells an app where it must attach.
type Begin struct {
	Dir      string               `json:"dir"`
	Sessions []protocol.SessionID `json:"sessions"`
	StopKey  string               `json:"stop_key"`
	Seed     uint64               `json:"seed"`
}

// A run is the state of Run.
type run struct {
	Options
	rnd     *rand.Rand
	next    func() string // returns a fault
	dir     string        // of the files of the probes
	probes  []*probe
	faults  map[string]int
	reports chan report
	silent  int  // number of probes into which the app has typed nothing yet
	isOver  bool // the app wants no more faults
	errs    []string
}

// Run disturbs the daemon, and returns its verdict after the app has closed In. It returns an error if it could not
// judge, for example because the daemon does not serve.
func Run(ctx context.Context, o Options) (*Verdict, error) {
	dir, err := os.MkdirTemp("", "holdfast-chaos-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := newRun(o)
	r.dir = dir
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.forget()
	go func() {
		if err := r.read(ctx); err != nil {
			cancel(err)
		}
		close(r.reports)
	}()
	began := time.Now()
	if err := r.disturb(ctx); errors.Is(err, io.EOF) {
		return nil, errors.New("the app closed its reports before it was told to stop")
	} else if err != nil {
		return nil, err
	}
	if err := r.end(ctx); err != nil {
		return nil, err
	}
	v := r.judge()
	v.Seconds = time.Since(began).Seconds()
	return v, r.tell(line{Verdict: v})
}

func newRun(o Options) *run {
	rnd := rand.New(rand.NewPCG(o.Seed, 0))
	return &run{Options: o, rnd: rnd, next: newPicker(o.Faults, rnd), faults: map[string]int{}, reports: make(chan report), silent: o.Sessions}
}

// begin starts the probes, and tells the app.
func (r *run) begin(ctx context.Context) error {
	b := &Begin{Dir: r.RelayDir, StopKey: stopKey, Seed: r.Seed}
	for n := range r.Sessions {
		p := newProbe(r.Seed, n, r.dir)
		spec := protocol.SpawnSpec{Argv: p.argv(r.Proxy), Originator: "chaos", Cols: 80, Rows: 24}
		if _, err := r.Client.Spawn(ctx, client.SpawnRequest{ID: p.id, SpawnSpec: spec}); err != nil {
			r.forget()
			return fmt.Errorf("start the session %s: %w", p.id, err)
		}
		r.probes = append(r.probes, p)
		b.Sessions = append(b.Sessions, p.id)
	}
	return r.tell(line{Begin: b})
}

// forget ends the probes that have not exited, and removes all of them.
func (r *run) forget() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, p := range r.probes {
		_ = r.Client.Terminate(ctx, p.id, client.End{Grace: new(time.Duration)}) // it has usually exited
		_, _ = r.Client.Wait(ctx, p.id, patience)
		_ = r.Client.Forget(ctx, p.id)
	}
}

func (r *run) tell(l line) error { return json.NewEncoder(r.Out).Encode(l) }

// read passes the reports on until the app closes In, and returns the reason why the run must end then, or nil.
func (r *run) read(ctx context.Context) error {
	lines := bufio.NewScanner(r.In)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var rep report
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields() // a misspelt report would look like a mistake of the client
		if err := decoder.Decode(&rep); err != nil {
			return fmt.Errorf("invalid_report: %.100q: %w", lines.Text(), err)
		}
		select {
		case r.reports <- rep:
		case <-ctx.Done():
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the reports of the app: %w", err)
	}
	return nil
}

// disturb waits until the app types into each probe, and then makes faults for the time of the run. It stops one probe
// after another, so that sessions end while faults are made.
func (r *run) disturb(ctx context.Context) error {
	late := time.After(patience)
	for r.silent > 0 {
		if err := r.wait(ctx, late, fmt.Errorf("the app did not type into each session within %v", patience)); err != nil {
			return err
		}
	}
	var over, pause <-chan time.Time // none, if only the app asks for faults
	if r.Last > 0 {
		over, pause = time.After(r.Last), time.After(r.upTo(maxPause))
	}
	stopAt, stopped := r.Last/time.Duration(r.Sessions), 0
	begin := time.Now()
	isMissing := func(kind string) bool { return r.faults[kind] == 0 }
	for isOver := false; !r.isOver && (!isOver || slices.ContainsFunc(r.Faults, isMissing)); {
		select {
		case <-over:
			isOver = true
		case <-pause:
			if err := r.fault(ctx, r.next()); err != nil {
				return err
			}
			pause = time.After(r.upTo(maxPause))
		case rep, ok := <-r.reports:
			if err := r.take(ctx, rep, ok); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for ; r.Last > 0 && stopped < r.Sessions-1 && time.Since(begin) > stopAt*time.Duration(stopped+1); stopped++ {
			if err := r.tell(line{Stop: r.probes[stopped].id}); err != nil {
				return err
			}
		}
	}
	for ; stopped < r.Sessions; stopped++ {
		if err := r.tell(line{Stop: r.probes[stopped].id}); err != nil {
			return err
		}
	}
	return nil
}

// upTo returns a random time.
func (r *run) upTo(d time.Duration) time.Duration { return time.Duration(r.rnd.Int64N(int64(d))) }

// end receives the reports until the app closes In.
func (r *run) end(ctx context.Context) error {
	late, errLate := time.After(patience), fmt.Errorf("the app did not close its reports within %v after the last stop", patience)
	for {
		err := r.wait(ctx, late, errLate)
		if errors.Is(err, errLate) {
			r.errs = append(r.errs, err.Error())
			return nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// wait takes the next report, or returns lateErr when it is late. It returns io.EOF if the app has closed In.
func (r *run) wait(ctx context.Context, late <-chan time.Time, lateErr error) error {
	select {
	case rep, ok := <-r.reports:
		return r.take(ctx, rep, ok)
	case <-late:
		return lateErr
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take handles the next report of the app. isOpen is false if there are no more reports.
func (r *run) take(ctx context.Context, rep report, isOpen bool) error {
	if !isOpen {
		return cmp.Or(context.Cause(ctx), io.EOF) // the reports end, too, if one of them is invalid
	}
	if rep.End {
		r.isOver = true
	}
	if rep.Fault != "" {
		if err := r.fault(ctx, rep.Fault); err != nil {
			return err
		}
		return r.tell(line{Done: rep.Fault})
	}
	if rep.Session == "" {
		return nil
	}
	for _, p := range r.probes {
		if p.id == rep.Session {
			if rep.Typed != "" && p.typed.Len() == 0 {
				r.silent--
			}
			return p.take(rep)
		}
	}
	return fmt.Errorf("the app reports about %q, which is no session of the run", rep.Session)
}

// judge compares the reports of the app with the files of the probes.
func (r *run) judge() *Verdict {
	v := &Verdict{Seed: r.Seed, Faults: r.faults, Errors: slices.Concat([]string{}, r.errs)}
	for _, p := range r.probes {
		p.judge(v)
	}
	v.OK = len(v.Errors) == 0
	return v
}

// A Verdict tells whether the app's client kept its promises.
type Verdict struct {
	OK      bool           `json:"ok"`
	Seed    uint64         `json:"seed"`
	Seconds float64        `json:"seconds"`
	Faults  map[string]int `json:"faults"` // number of faults of each kind
	Output  struct {
		Printed  int `json:"printed"` // bytes that the probes printed
		Received int `json:"received"`
	} `json:"output"`
	Keys struct {
		Sent    int `json:"sent"` // bytes that the app typed
		Arrived int `json:"arrived"`
	} `json:"keys"`
	Exits struct {
		Real     int `json:"real"` // probes that have exited
		Reported int `json:"reported"`
	} `json:"exits"`
	Errors []string `json:"errors"`
}

// Probe is the program of a probe: it returns at the stop key. probe.argv has its arguments.
func Probe(file string, seed uint64) error { return runProbe(os.Stdin, os.Stdout, file, seed) }

// Kinds are the kinds of faults.
func Kinds() []string {
	return []string{"handoff", "kill-proxy", "kill-supervisor", "kill-keeper", "cut", "slow"}
}

// IsOfRelay reports whether a fault is one of connections, which needs the relay.
func IsOfRelay(kind string) bool { return kind == "cut" || kind == "slow" }

// newPicker returns a function that returns a fault. Each kind comes once before any comes again.
func newPicker(kinds []string, rnd *rand.Rand) func() string {
	order := slices.Clone(kinds)
	at := len(order)
	return func() string {
		if at == len(order) {
			rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			at = 0
		}
		at++
		return order[at-1]
	}
}
