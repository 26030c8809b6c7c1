package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
)

// limitFlags adds a flag for each limit, and returns the limits that the flags set.
func limitFlags(cmd *cobra.Command) *protocol.Limits {
	l := &protocol.Limits{}
	for _, f := range protocol.LimitFields() {
		cmd.Flags().Var(&limitValue{l, f}, strings.ReplaceAll(f.Name, "_", "-"), limitUsage[f.Name])
	}
	return l
}

// limitUsage has the help text of each limit's flag.
var limitUsage = map[string]string{
	protocol.LabelMemoryMax:  "`size` of memory, such as 512M, above which the kernel kills a program of the session; none removes the limit",
	protocol.LabelMemoryHigh: "`size` of memory above which the kernel slows the session down",
	protocol.LabelPIDsMax:    "`number` of processes and threads",
	protocol.LabelCPUMax:     "`processors`, such as 1.5 or 150%",
	protocol.LabelCPUWeight:  "`share` against other sessions when processors are scarce, 1 to 10000; the default is 100",
}

// limitValue is the value of one limit's flag.
type limitValue struct {
	all   *protocol.Limits
	field protocol.LimitField
}

func (v *limitValue) String() string {
	if v.all == nil { // package pflag asks a zero value for its default
		return ""
	}
	if n := *v.field.Of(v.all); n != nil {
		return v.field.Format(*n)
	}
	return ""
}

func (v *limitValue) Set(text string) error {
	if err := v.field.Parse(v.all, text); err != nil {
		return errors.New(protocol.AsError(err).Message)
	}
	return nil
}

func (v *limitValue) Type() string { return "limit" }

func (a *app) limitCommand() *cobra.Command {
	var limits *protocol.Limits
	cmd := a.oneSession("limit ID", "Change how much memory, processor time and how many processes a session may use", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			info, err := c.Limit(cmd.Context(), id, *limits)
			if err != nil {
				return err
			}
			text := "none"
			if info.Cage != nil && info.Cage.Limits.String() != "" {
				text = info.Cage.Limits.String()
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "limits: %s\n", text)
			return err
		})
	limits = limitFlags(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if limits.IsZero() {
			return exitcode.WrongUsage(errors.New("no limit to change: give a limit, such as --memory-max 512M"))
		}
		return nil
	}
	cmd.Long = "Change limits of a running session. Limits that are not given stay as they are. A limit holds for\n" +
		"all programs of the session together. Limits need a control group for the session; proxy doctor tells\n" +
		"whether sessions have one. If the new memory limit is lower than the session's use of memory, the\n" +
		"kernel may kill one of its programs. proxy new and proxy run have the same flags."
	cmd.Example = "  proxy limit build --memory-max 2G --cpu-max 150%\n  proxy limit build --pids-max none"
	return cmd
}

func (a *app) freezeCommand() *cobra.Command {
	cmd := a.oneSession("freeze ID", "Stop all programs of a session until it is thawed", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			return c.Freeze(cmd.Context(), id)
		})
	cmd.Long = "Stop all programs of a session, even those that have left its terminal, without a signal\n" +
		"that they would notice. They use no processor time until proxy thaw. Input that arrives\n" +
		"meanwhile is kept for them. Freezing needs a control group (see proxy doctor)."
	cmd.Example = "  proxy freeze build"
	return cmd
}

func (a *app) thawCommand() *cobra.Command {
	cmd := a.oneSession("thaw ID", "Continue all programs of a frozen session", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			return c.Thaw(cmd.Context(), id)
		})
	cmd.Example = "  proxy thaw build"
	return cmd
}

// useText returns how much memory, how many processes and how much processor time a session uses;
// "-" if that is unknown.
func useText(c *protocol.Cage) (memory, pids, cpu string) {
	if c == nil {
		return "-", "-", "-"
	}
	memory, pids = "-", "-"
	if c.MemoryBytes > 0 {
		memory = protocol.FormatBytes(c.MemoryBytes)
	}
	if c.PIDs > 0 {
		pids = fmt.Sprint(c.PIDs)
	}
	return memory, pids, seconds(c.UserMS + c.SystemMS)
}

// sayCage prints the resources that all programs of a session used, and the limits that they
// reached.
func sayCage(say func(string, ...any), c *protocol.Cage) {
	var parts []string
	if c.MemoryPeakBytes > 0 {
		parts = append(parts, "at most "+byteSize(c.MemoryPeakBytes)+" of memory")
	}
	if c.PIDsPeak > 0 {
		parts = append(parts, fmt.Sprintf("at most %d processes and threads", c.PIDsPeak))
	}
	parts = append(parts, fmt.Sprintf("%s of processor time, %s of the kernel's", seconds(c.UserMS), seconds(c.SystemMS)))
	say("all of it used %s", strings.Join(parts, ", "))
	if text := c.Limits.String(); text != "" {
		say("its limits were %s", text)
	}
	if c.OOMKills > 0 {
		where := "of the machine"
		if c.OOMs > 0 {
			where = "at its limit"
			if c.Limits.MemoryMax != nil {
				where += " of " + protocol.FormatBytes(*c.Limits.MemoryMax)
			}
		}
		text := fmt.Sprintf("memory ran out %s: the kernel killed %s", where, processes(c.OOMKills))
		if len(c.OOMKilled) > 0 {
			text += ", " + plain.Text(strings.Join(c.OOMKilled, ", "))
		}
		say("%s", text)
	}
	if c.PIDsDenied > 0 {
		text := "it ran out of processes"
		if c.Limits.PIDsMax != nil {
			text += fmt.Sprintf(" at its limit of %d", *c.Limits.PIDsMax)
		}
		say("%s: %s could not be started", text, processes(c.PIDsDenied))
	}
}

func processes(n uint64) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
