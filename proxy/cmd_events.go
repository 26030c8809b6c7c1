package main

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
)

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

var eventKinds = []string{
	string(protocol.EventCreated), string(protocol.EventExited), string(protocol.EventForgotten), string(protocol.EventResized),
	string(protocol.EventAttached), string(protocol.EventDetached), string(protocol.EventMissed), string(protocol.EventTitle),
	string(protocol.EventLabels), string(protocol.EventCwd), string(protocol.EventBell), string(protocol.EventNotification), string(protocol.EventDegraded),
	string(protocol.EventOutputIdle), string(protocol.EventCommandStarted), string(protocol.EventCommandFinished),
}

func (a *app) eventsCommand() *cobra.Command {
	o := &eventsOptions{}
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "events",
		Short: "Print what happens, as it happens",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.old, o.json = cmd.Flags().Changed("after"), a.json
			if err := o.check(); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error { return o.print(cmd.Context(), c, cmd.OutOrStdout()) })
		},
	})
	cmd.Long = "Print what happens to all sessions, one event a line, until ctrl-c; with --json as objects.\n" +
		"It goes on where it was when the proxy or the supervisor is replaced.\n\n" +
		"Events have numbers. --after goes on behind one, --since with those of the last while, as\n" +
		"far as the supervisor keeps them (some thousand); what it no longer keeps is told as missed,\n" +
		"whatever is filtered. --follow=false ends where the present begins. Numbers begin anew where\n" +
		"a supervisor has died with its sessions.\n\n" +
		"Where --timeout is over it ends with 0, or with 124 if --count has not been reached."
	cmd.Example = "  proxy events --json --kind exited --session build --count 1\n" +
		"  proxy events --since 10m --follow=false"
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", true, "go on with what happens (the default)")
	f.Uint64Var(&o.after, "after", 0, "begin behind the event with this `number`; 0 is all that are kept")
	spanVar(f, &o.since, "since", 0, "begin with what has happened in this `time`")
	f.StringVar(&o.session, "session", "", "only of the session with this `id`")
	f.StringSliceVar(&o.kinds, "kind", nil, "only of these `kinds`: "+strings.Join(eventKinds, ", "))
	f.IntVar(&o.count, "count", 0, "end after so many (default never)")
	spanVar(f, &o.timeout, "timeout", 0, "end after this `time` (default never)")
	for _, name := range []string{"follow", "after", "since", "count", "timeout"} {
		f.Lookup(name).DefValue = zeroOf[f.Lookup(name).Value.Type()] // not shown
	}
	cmd.MarkFlagsMutuallyExclusive("after", "since")
	_ = cmd.RegisterFlagCompletionFunc("session", a.sessionIDs(anyState))
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(eventKinds, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// zeroOf is, by type, the default of a flag that help leaves out.
var zeroOf = map[string]string{"bool": "false", "uint64": "0", "int": "0", "duration": "0s"}

// check reports mistakes.
func (o *eventsOptions) check() error {
	var errs []error
	for _, k := range o.kinds {
		if !slices.Contains(eventKinds, k) {
			errs = append(errs, fmt.Errorf("no events are of the kind %.40q", k))
		}
	}
	if o.session != "" {
		if err := protocol.SessionID(o.session).Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if o.count < 0 || o.timeout < 0 || o.since < 0 {
		errs = append(errs, errors.New("--count, --timeout and --since are not negative"))
	}
	if len(errs) > 0 {
		return usage(errors.Join(errs...))
	}
	return nil
}

// wants reports whether an event is to be printed. That some were missed concerns
// everybody.
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

// settled is how long nothing must come before it is believed that nothing more of the
// past does. Only a client that does not see all events needs it: it may not see the last.
const settled = time.Second

func (o *eventsOptions) print(ctx context.Context, c *client.Client, out io.Writer) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	events, err := o.subscribe(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }()
	defer context.AfterFunc(ctx, func() { _ = events.Close() })()
	n, err := o.each(events, out)
	if err == nil && n < o.count && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &exitError{exitTimeout, fmt.Sprintf("timeout: %d of %s after %v", n, count(o.count, "event"), o.timeout)}
	}
	return err
}

func (o *eventsOptions) subscribe(ctx context.Context, c *client.Client) (*client.Events, error) {
	if o.follow && !o.old && o.since == 0 {
		return c.Events(ctx)
	}
	return c.EventsAfter(ctx, o.after)
}

// each prints what is wanted, until there is nothing more to come, and returns how
// much that was.
func (o *eventsOptions) each(events *client.Events, out io.Writer) (n int, err error) {
	begin := time.Now().Add(-o.since)
	var at time.Time         // of the last event that had a time: an end has none
	var missed *client.Event // before the times that are asked for, as far as we know
	var silence *time.Timer
	if !o.follow {
		if events.Newest() == o.after { // 0 where there was none yet
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

func (o *eventsOptions) write(out io.Writer, e *client.Event) (err error) {
	if o.json {
		return jsonTo(out).Encode(e)
	}
	_, err = fmt.Fprintln(out, eventText(e))
	return err
}
