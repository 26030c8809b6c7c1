package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// limitFlags adds a flag for each limit, and returns where their values are put.
func limitFlags(cmd *cobra.Command) *protocol.Limits {
	l := &protocol.Limits{}
	for _, f := range protocol.LimitFields() {
		cmd.Flags().Var(&limitValue{l, f}, strings.ReplaceAll(f.Name, "_", "-"), limitUsage[f.Name])
	}
	return l
}

var limitUsage = map[string]string{
	protocol.LabelMemoryMax:  "`size`, such as 512M: beyond it the kernel kills a program of the session; none takes it away",
	protocol.LabelMemoryHigh: "`size` of memory beyond which the session is slowed down",
	protocol.LabelPIDsMax:    "`number` of processes and threads",
	protocol.LabelCPUMax:     "`processors`, such as 1.5 or 150%",
	protocol.LabelCPUWeight:  "`share` against other sessions when processors are scarce, 1 to 10000; 100 is usual",
}

// limitValue is the value of one limit's flag.
type limitValue struct {
	all   *protocol.Limits
	field protocol.LimitField
}

func (v *limitValue) String() string {
	if v.all == nil { // as package flag asks for a default
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
			return usage(errors.New("nothing to change: give a limit, such as --memory-max 512M"))
		}
		return nil
	}
	cmd.Long = "Change limits of a session that runs, and leave the others. They hold for all of its\n" +
		"programs together, and need a control group of its own (proxy doctor says whether\n" +
		"sessions have one). With less memory than the session uses, the kernel may kill a\n" +
		"program of it. proxy new and proxy run have the same flags."
	cmd.Example = "  proxy limit build --memory-max 2G --cpu-max 150%\n  proxy limit build --pids-max none"
	return cmd
}

func (a *app) freezeCommand() *cobra.Command {
	cmd := a.oneSession("freeze ID", "Stop all programs of a session until it is thawed", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			return c.Freeze(cmd.Context(), id)
		})
	cmd.Long = "Stop all programs of a session, also those that have left its terminal, without a\n" +
		"signal that they would notice. They use no processor until proxy thaw. What is typed\n" +
		"meanwhile is kept for them. It needs a control group of its own (proxy doctor)."
	cmd.Example = "  proxy freeze build"
	return cmd
}

func (a *app) thawCommand() *cobra.Command {
	cmd := a.oneSession("thaw ID", "Have all programs of a frozen session run on", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			return c.Thaw(cmd.Context(), id)
		})
	cmd.Example = "  proxy thaw build"
	return cmd
}

// useText is what a session uses now, in a few words; "-" if that is not known.
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

// sayCage tells in an exit record what all of a session used, and which limit it met.
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
			text += ", " + printable(strings.Join(c.OOMKilled, ", "))
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
