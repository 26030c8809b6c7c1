// Package hostupgrade lets the agent of a host replace the programs of the host if a client of the gate asks for
// it, and returns to the programs from before if the new ones are not healthy.
//
// The work itself is done by "proxy upgrade" of the new programs, as if a user had run it. When the host is healthy, "proxy
// join --handoff" of the new programs replaces the agent, and with it this process, which still reports the result. This package
// decides whether the work may be done, keeps copies of the programs that run, looks at the host before and
// afterwards, and reports.
//
//	Serve   answers one client
//	work    one goroutine for the one Upgrade that is in work; it outlives the connection of the client
//
// Invariant: no program is executed from a directory that the owner of the host has not permitted, except those of
// an archive from a permitted URL with the SHA-256 that the client has named (archive.go), and
// the copies of the programs that have run here. No session is ended, and none is touched by anything but
// "proxy upgrade". At most one Upgrade is in work.
//
// Not here: which hosts are upgraded, and in which order (package rollout).
package hostupgrade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/shared/logging"
	"holdfast/shared/plain"
)

// Limits and times.
const (
	writeLimit = 10 * time.Second // for an answer
	maxSteps   = 256              // steps of one Upgrade that are kept
	lookPause  = 200 * time.Millisecond
	lookLimit  = 5 * time.Second // for the first look at the host, which is repeated
	// answerLimit is how long the proxy of the host may take for its answers to the first look.
	answerLimit = 20 * time.Second
	// returnLimit is the least time for a return, because a short limit for the new programs must not prevent
	// it.
	returnLimit = 2 * time.Minute
	versionTime = 10 * time.Second // for "proxy --version"
)

// Options are the settings and functions that an Upgrader needs of its program.
type Options struct {
	Dir     string // for copies of the programs that ran before an upgrade
	Fetched string // directory for the programs of archives
	Log     zerolog.Logger
	// Permitted returns the directories, and the beginnings of URLs of archives, from which this host may be upgraded.
	Permitted func() ([]string, error)
	Transport http.RoundTripper // of downloads; nil: http.DefaultTransport
	// Look returns the processes and sessions of this host. It returns ErrIdle if no proxy runs.
	Look func(ctx context.Context) (Running, error)
	// Watch subscribes to the events of this host until ctx is done, and returns when the subscription is made. From
	// then on, it calls ended for each session that ends, or whose exit record is deleted.
	Watch func(ctx context.Context, ended func(protocol.SessionID, protocol.Instance)) error
	// Agent returns the agent of this host that serves now.
	Agent func(ctx context.Context) (Process, error)
	// Command returns a command of the program proxy in a directory, with its arguments.
	Command func(ctx context.Context, dir, command string, args ...string) (*exec.Cmd, error)
	// Settle is how long a Command that was killed may still have an effect, because it has started a successor
	// of the proxy.
	Settle time.Duration
}

// ErrIdle tells that no proxy runs, so that no process can be upgraded.
var ErrIdle = errors.New("no proxy runs on this host")

// A Running has the processes and sessions of this host.
type Running struct {
	Supervisor, Proxy Process
	Sessions          []protocol.SessionInfo
}

// A Process is a process of Holdfast.
type Process struct {
	PID     int
	Version string
}

// An Upgrader does the upgrades of one host.
type Upgrader struct {
	o        Options
	refusals logging.Limiter // of log lines that clients cause

	maxArchive, maxUnpacked int64 // bytes of an archive, and of the files in it

	mu  sync.Mutex
	job *job // the one in work, or the last one
}

// A job is an Upgrade in work.
type job struct {
	request gate.Upgrade

	mu      sync.Mutex
	steps   []string
	changed chan struct{}  // closed and replaced with each step
	result  *gate.Upgraded // set at the end
	ended   map[life]bool  // sessions that have ended during the work
}

// A life is one instance of a session.
type life struct {
	id       protocol.SessionID
	instance protocol.Instance
}

// New returns an Upgrader.
func New(o Options) *Upgrader {
	return &Upgrader{o: o, maxArchive: maxArchive, maxUnpacked: maxUnpacked}
}

// IsBusy reports whether an Upgrade is in work.
func (u *Upgrader) IsBusy() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.job == nil {
		return false
	}
	_, _, result := u.job.state()
	return result == nil
}

// Serve answers the request of a client, or refuses it. The work continues if the connection or ctx ends.
func (u *Upgrader) Serve(ctx context.Context, conn net.Conn, request gate.Upgrade) error {
	if err := check(request); err != nil {
		return u.refuse(conn, gate.RefusedInvalid, err.Error())
	}
	from, err := u.permit(request)
	if err != nil {
		return u.refuse(conn, gate.RefusedUnauthorized, err.Error())
	}
	j := u.begin(ctx, request, from)
	if j == nil {
		return u.refuse(conn, gate.RefusedBusy, "another upgrade of this host is in work")
	}
	return j.follow(ctx, conn)
}

func (u *Upgrader) refuse(conn net.Conn, code gate.Refusal, why string) error {
	u.refusals.Of(u.o.Log).Warn().Bool(logging.Security, true).Str(logging.Code, string(code)).Str("why", why).Msg("upgrade refused")
	_ = conn.SetWriteDeadline(time.Now().Add(writeLimit))
	return gate.Write(conn, gate.Refused{Code: code, Message: why})
}

// check returns an error if the request is not valid.
func check(m gate.Upgrade) error {
	limit := time.Duration(m.LimitMS) * time.Millisecond
	switch {
	case !gate.ValidHost(m.ID): // an id has the characters of a host's name
		return fmt.Errorf("%.80q is no id of a rollout", m.ID)
	case !slices.Contains(gate.UpgradeActions(), m.Action):
		return fmt.Errorf("the action %.80q is unknown", m.Action)
	case isURL(m.From):
		if err := gate.CheckArchive(m.From, m.SHA256); err != nil {
			return err
		}
	case !filepath.IsAbs(m.From) || len(m.From) > gate.MaxUpgradeText:
		return fmt.Errorf("%.80q is neither the absolute path of a directory nor a URL with https", m.From)
	case m.SHA256 != "":
		return errors.New("a SHA-256 is for the URL of an archive, and not for a directory")
	}
	switch {
	case m.LimitMS <= 0 || m.LimitMS > gate.MaxUpgradeLimit.Milliseconds():
		return fmt.Errorf("the limit must be more than 0 and at most %v, and not %v", gate.MaxUpgradeLimit, limit)
	case m.MaxStallMS < 0:
		return errors.New("the longest pause must not be negative")
	}
	return nil
}

func isURL(from string) bool { return strings.HasPrefix(from, gate.ArchiveScheme) }

// permit returns the directory of a request without symbolic links, or the URL, if it is one that the owner has permitted
// or is below one. A link that leads out of a permitted directory is not followed.
//
// A return needs only that the owner permits any upgrade. It executes nothing from the directory of the request, which may
// be gone, but the copies of the programs that ran here before the upgrade with the id of the request.
func (u *Upgrader) permit(request gate.Upgrade) (string, error) {
	permitted, err := u.o.Permitted()
	if err != nil {
		return "", err
	}
	if len(permitted) == 0 {
		return "", errors.New("the owner of this host permits no upgrade by clients of the gate; the setting upgrade_from on the host names the directories of programs")
	}
	dir := request.From
	if request.Action == gate.UpgradeReturn {
		return dir, nil
	}
	if isURL(dir) {
		return dir, permitURL(dir, permitted)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("directory of the programs: %w", err)
	}
	for _, p := range permitted {
		if isURL(p) {
			continue
		}
		p, err := filepath.EvalSymlinks(p)
		if err != nil {
			continue // it does not exist, so the archive cannot be in it
		}
		if rel, err := filepath.Rel(p, real); err == nil && filepath.IsLocal(rel) {
			return real, nil
		}
	}
	return "", fmt.Errorf("the owner of this host permits upgrades from %s, and not from %.200s", strings.Join(permitted, ", "), dir)
}

// begin returns the job of a request. A request that arrives again has the same job. begin returns nil if
// another job is in work.
func (u *Upgrader) begin(ctx context.Context, request gate.Upgrade, from string) *job {
	u.mu.Lock()
	defer u.mu.Unlock()
	if j := u.job; j != nil {
		_, _, result := j.state()
		isSame := j.request == request
		// A check or trial that has ended is repeated, because its result may have changed since.
		isKept := request.Action == gate.UpgradeApply || request.Action == gate.UpgradeReturn
		if isSame && (result == nil || isKept && result.State != gate.UpgradeFailed) {
			return j
		}
		if result == nil {
			return nil
		}
	}
	// The first step shows a client that it has reached the agent, also after its connection was cut.
	j := &job{request: request, changed: make(chan struct{}), steps: []string{"the agent has begun to " + string(request.Action)}}
	u.job = j
	go func() { // it must outlive the connection, so ctx does not end it
		result := u.work(context.WithoutCancel(ctx), j, from)
		result.Error = cut(result.Error)
		u.o.Log.Info().Str("action", string(request.Action)).Str("from", from).Str("state", string(result.State)).Str("why", result.Error).
			Str("supervisor", result.Supervisor).Str("proxy", result.Proxy).Msg("upgrade has ended")
		j.end(result)
	}()
	return j
}

func cut(text string) string {
	return plain.Cut(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "), gate.MaxUpgradeText)
}

// step notes a step.
func (j *job) step(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.steps) < maxSteps {
		j.steps = append(j.steps, cut(fmt.Sprintf(format, args...)))
	}
	j.signal()
}

func (j *job) end(result gate.Upgraded) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result = &result
	j.signal()
}

// endSession notes that a session has ended.
func (j *job) endSession(id protocol.SessionID, instance protocol.Instance) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended == nil {
		j.ended = map[life]bool{}
	}
	j.ended[life{id, instance}] = true
}

// living returns the sessions of before that have not ended during the work.
func (j *job) living(before []protocol.SessionInfo) (living []protocol.SessionInfo) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range before {
		if !j.ended[life{s.ID, s.Instance}] {
			living = append(living, s)
		}
	}
	return living
}

// signal wakes all that follow. mu is held.
func (j *job) signal() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// state returns the steps, a channel that is closed with the next change, and the result or nil.
func (j *job) state() (steps []string, changed <-chan struct{}, result *gate.Upgraded) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.steps, j.changed, j.result
}

// follow sends all steps and the result to a client. It reads from the connection to notice its end.
func (j *job) follow(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	_ = conn.SetReadDeadline(time.Time{})
	go func() {
		_, err := conn.Read(make([]byte, 1))
		if err == nil {
			err = errors.New("the client has sent something after its request")
		}
		cancel(err)
	}()
	send := func(m protocol.Message) error {
		_ = conn.SetWriteDeadline(time.Now().Add(writeLimit))
		return gate.Write(conn, m)
	}
	for sent := 0; ; {
		steps, changed, result := j.state()
		for ; sent < len(steps); sent++ {
			if err := send(gate.UpgradeStep{Text: steps[sent]}); err != nil {
				return err
			}
		}
		if result != nil {
			return send(*result)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
