package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

// eventsOptions are the flags of events.
type eventsOptions struct {
	follow  bool
	after   uint64
	old     bool // --after was given
	since   time.Duration
	session string
	kinds   []string
	count   int
	timeout time.Duration
	json    bool
}

// eventKinds lists the kinds of events for --kind.
var eventKinds = []string{
	string(protocol.EventCreated), string(protocol.EventExited), string(protocol.EventForgotten), string(protocol.EventResized),
	string(protocol.EventAttached), string(protocol.EventDetached), string(protocol.EventMissed), string(protocol.EventTitle),
	string(protocol.EventLabels), string(protocol.EventCwd), string(protocol.EventBell), string(protocol.EventNotification),
	string(protocol.EventFrozen), string(protocol.EventThawed), string(protocol.EventDegraded),
	string(protocol.EventRecordingFailed), string(protocol.EventRecordingResumed),
	string(protocol.EventOutputIdle), string(protocol.EventCommandStarted), string(protocol.EventCommandFinished), string(protocol.EventProgramStatus),
}

func (a *App) eventsCommand() *cobra.Command {
	o := &eventsOptions{}
	cmd := a.JSONFlag(&cobra.Command{
		Use:   "events",
		Short: "Print the events of all sessions as they happen",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.old, o.json = cmd.Flags().Changed("after"), a.JSON
			if err := o.check(); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error { return o.print(cmd.Context(), c, cmd.OutOrStdout()) })
		},
	})
	cmd.Long = "Print the events of all sessions, one on each line, until ctrl-c; with --json as objects.\n" +
		"events continues where it was if the proxy or the supervisor is replaced.\n\n" +
		"Each event has a number. --after begins after the event with that number; --since begins with the\n" +
		"events of the given time. The supervisor keeps some thousand events; older ones are reported as\n" +
		"missed, even if a filter is given. --follow=false prints the past events and ends. The numbers begin\n" +
		"anew if a supervisor has died together with its sessions.\n\n" +
		"After --timeout the exit code is 0, or 124 if --count was not reached."
	cmd.Example = "  proxy events --json --kind exited --session build --count 1\n" +
		"  proxy events --since 10m --follow=false"
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", true, "continue with new events (the default)")
	f.Uint64Var(&o.after, "after", 0, "begin after the event with this `number`; 0 prints all that are kept")
	SpanVar(f, &o.since, "since", 0, "begin with the events of this `time` before now, such as 10m")
	f.StringVar(&o.session, "session", "", "print only events of the session with this `id`")
	f.StringSliceVar(&o.kinds, "kind", nil, "print only events of these `kinds`: "+strings.Join(eventKinds, ", "))
	f.IntVar(&o.count, "count", 0, "end after this `number` of events (default never)")
	SpanVar(f, &o.timeout, "timeout", 0, "end after this `time` (default never)")
	for _, name := range []string{"follow", "after", "since", "count", "timeout"} {
		f.Lookup(name).DefValue = zeroOf[f.Lookup(name).Value.Type()] // not shown
	}
	cmd.MarkFlagsMutuallyExclusive("after", "since")
	_ = cmd.RegisterFlagCompletionFunc("session", a.sessionIDs(anyState))
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(eventKinds, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// zeroOf maps types of flags to the default values that the help text omits.
var zeroOf = map[string]string{"bool": "false", "uint64": "0", "int": "0", "duration": noDefault}

// check reports invalid options.
func (o *eventsOptions) check() error {
	var errs []error
	for _, k := range o.kinds {
		if !slices.Contains(eventKinds, k) {
			errs = append(errs, fmt.Errorf("--kind %.40q: there is no such kind of event; the kinds are %s", k, strings.Join(eventKinds, ", ")))
		}
	}
	if o.session != "" {
		if err := protocol.SessionID(o.session).Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if o.count < 0 || o.timeout < 0 || o.since < 0 {
		errs = append(errs, errors.New("--count, --timeout and --since must not be negative"))
	}
	if len(errs) > 0 {
		return exitcode.WrongUsage(errors.Join(errs...))
	}
	return nil
}

// wants reports whether an event passes the filters. An event that reports missed events always
// passes.
func (o *eventsOptions) wants(e *client.Event) bool {
	if e.Event == protocol.EventMissed {
		return true
	}
	id := protocol.SessionID("")
	switch {
	case e.Exit != nil:
		id = e.Exit.SessionID
	case e.Session != nil:
		id = e.Session.ID
	}
	return (o.session == "" || string(id) == o.session) && (len(o.kinds) == 0 || slices.Contains(o.kinds, string(e.Event)))
}

// settled is the time without an event after which no more past events are expected. Only a client
// that cannot see all events needs it, because the last event may be one that it cannot see.
const settled = time.Second

// print subscribes to events and prints them.
func (o *eventsOptions) print(ctx context.Context, c *client.Client, out io.Writer) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	n, err := o.printUntil(ctx, c, out)
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		if err == nil && n < o.count {
			err = ctx.Err() // without --count, a signal is the usual end
		}
		return err
	}
	if n < o.count { // err only tells that the connection was closed because of the timeout
		return exitcode.Newf(sysexits.Timeout, "timeout: %d of %s after %v", n, plain.Count(o.count, "event"), o.timeout)
	}
	return nil
}

// printUntil prints events until ctx ends, or no more can follow. It returns their number.
func (o *eventsOptions) printUntil(ctx context.Context, c *client.Client, out io.Writer) (int, error) {
	events, err := o.subscribe(ctx, c)
	if err != nil {
		return 0, err
	}
	defer func() { _ = events.Close() }()
	defer context.AfterFunc(ctx, func() { _ = events.Close() })()
	return o.each(events, out)
}

// subscribe subscribes to new events, or to past and new ones.
func (o *eventsOptions) subscribe(ctx context.Context, c *client.Client) (*client.Events, error) {
	if o.follow && !o.old && o.since == 0 {
		return c.Events(ctx)
	}
	return c.EventsAfter(ctx, o.after)
}

// each prints the events that pass the filters, until no more can follow. It returns their number.
func (o *eventsOptions) each(events *client.Events, out io.Writer) (n int, err error) {
	begin := time.Now().Add(-o.since)
	var at time.Time         // time of the last event that had one; an exit of an older proxy has none
	var missed *client.Event // events were missed before the time of --since, as far as is known
	var silence *time.Timer
	if !o.follow {
		if events.Newest() == o.after { // both are 0 if there was no event yet
			return 0, nil
		}
		silence = time.AfterFunc(settled, func() { _ = events.Close() })
		defer silence.Stop()
	}
	for {
		e, err := events.Next()
		if silence != nil {
			silence.Reset(settled)
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if !e.At.IsZero() {
			at = e.At
		}
		switch {
		case o.since > 0 && e.Event == protocol.EventMissed && n == 0:
			missed = e
		case o.since > 0 && at.Before(begin):
			missed = nil
		case o.wants(e):
			for _, e := range []*client.Event{missed, e} {
				if e == nil {
					continue
				}
				if err := o.write(out, e); err != nil {
					return n, err
				}
				n++
			}
			missed = nil
		}
		if n >= o.count && o.count > 0 || !o.follow && e.Seq == events.Newest() {
			return n, nil
		}
	}
}

// write prints one event.
func (o *eventsOptions) write(out io.Writer, e *client.Event) (err error) {
	if o.json {
		return JSONTo(out).Encode(e)
	}
	_, err = fmt.Fprintln(out, eventText(e))
	return err
}

// eventText describes an event on one line.
func eventText(e *client.Event) string {
	switch {
	case e.Exit != nil:
		how := fmt.Sprintf("code %d", e.Exit.ExitCode)
		if e.Exit.Signal != "" {
			how = e.Exit.Signal
		}
		return fmt.Sprintf("%d exited %s %s, %s", e.Seq, e.Exit.SessionID, how, e.Exit.Reason)
	case e.Session == nil:
		return fmt.Sprintf("%d %s %d", e.Seq, e.Event, e.Missed)
	}
	s, more := e.Session, ""
	switch {
	case e.Event == protocol.EventResized:
		more = s.Size.String()
	case e.Event == protocol.EventTitle:
		more = plain.Text(s.Title)
	case e.Event == protocol.EventLabels:
		more = plain.Text(s.Labels[protocol.LabelTitle])
	case e.Event == protocol.EventCwd:
		more = plain.Text(s.CurrentCwd)
	case e.Event == protocol.EventCommandStarted && s.Command != nil:
		more = plain.Text(s.Command.Line)
	case e.Event == protocol.EventCommandFinished && s.Command != nil:
		more = commandText(s.Command)
	case e.Event == protocol.EventProgramStatus && s.Program != nil:
		more = programText(s.Program)
	case e.Notification != nil:
		more = plain.Text(strings.TrimSpace(e.Notification.Title + " " + e.Notification.Body))
	default:
		return fmt.Sprintf("%d %s %s", e.Seq, e.Event, s.ID)
	}
	return fmt.Sprintf("%d %s %s %s", e.Seq, e.Event, s.ID, more)
}

// programText describes the status that a program has reported.
func programText(p *protocol.ProgramStatus) string {
	words := []string{string(p.State), p.Kind, p.App, p.Title, p.Message}
	if p.Progress != nil {
		words = append(words, fmt.Sprintf("%d %%", *p.Progress))
	}
	return plain.Text(strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
}
