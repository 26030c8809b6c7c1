package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
)

func (a *App) lsCommand() *cobra.Command {
	var originator, onHost, state, command string
	var wide, all bool
	var labels map[string]string
	cmd := a.JSONFlag(&cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the sessions",
		Example: "  proxy ls\n  proxy ls --json\n  proxy ls --all --state unknown   # sessions whose hosts the gate cannot reach",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all {
				return a.lsAll(cmd, client.GateFilter{Host: onHost, State: protocol.State(state), Labels: labels, Command: command})
			}
			if onHost != "" || state != "" || command != "" {
				return exitcode.WrongUsagef("--host, --state and --command select sessions of --all")
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				list, err := c.ListBy(cmd.Context(), client.ListFilter{Originator: originator, Labels: labels})
				if err != nil {
					return err
				}
				if a.JSON {
					return PrintJSON(cmd, append([]protocol.SessionInfo{}, list...))
				}
				if len(list) == 0 && (originator != "" || len(labels) > 0) {
					_, err := fmt.Fprintln(cmd.OutOrStdout(), "no session matches --label and --originator")
					return err
				}
				if len(list) == 0 && a.Host == "" {
					a.tellElsewhere(cmd)
				}
				return printList(cmd.OutOrStdout(), list, wide)
			})
		},
	})
	cmd.Flags().StringVar(&originator, "originator", "", "list only sessions started by this `originator`")
	cmd.Flags().BoolVar(&all, "all", false, "list the sessions of all hosts that have joined the gate")
	cmd.Flags().StringVar(&onHost, "host", "", "with --all: list only sessions of this `host`")
	cmd.Flags().StringVar(&state, "state", "", "with --all: list only sessions in this `state`, such as running, exited or unknown")
	cmd.Flags().StringVar(&command, "command", "", "with --all: list only sessions whose command contains this `text`")
	cmd.Flags().BoolVar(&wide, "wide", false, "print also memory, processes and processor time of each session that has a control group")
	LabelsVar(cmd.Flags(), &labels, "list only sessions with this label, `k=v`")
	cmd.MarkFlagsMutuallyExclusive("all", "originator")
	cmd.MarkFlagsMutuallyExclusive("all", "wide")
	cmd.Flags().Lookup("label").DefValue = "" // omits the default from the help text
	return cmd
}

// tellElsewhere prints other directories in which sessions of this user may be.
func (a *App) tellElsewhere(cmd *cobra.Command) {
	dirs, secret, err := a.dirsAndSecret()
	if err != nil {
		return // the list itself has succeeded
	}
	for _, p := range a.elsewhere(cmd.Context(), dirs, secret) {
		Note("%s in %s; see its sessions: %s", p.Runs, p.Dir, p.Command)
	}
}

// printList prints a table of sessions.
func printList(out io.Writer, list []protocol.SessionInfo, wide bool) error {
	more := ""
	if wide {
		more = "MEMORY\tPIDS\tCPU\t"
	}
	header := "ID\tSTATE\tPID\tSIZE\tVIEWERS\tAGE\tIDLE\t" + more + "RUNS\tCOMMAND"
	return PrintTable(out, list, "no sessions; proxy new starts one", header, func(w io.Writer, s protocol.SessionInfo) {
		if wide {
			memory, pids, cpu := useText(s.Cage)
			more = memory + "\t" + pids + "\t" + cpu + "\t"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s%s\t%s\n", s.ID, stateText(s), pidText(s.PID), s.Size, s.Attachments,
			Since(s.CreatedAt), Since(s.LastIOAt), more, foregroundName(s), plain.Text(titleAndCommand(s)))
	})
}

// pidText returns the pid of a session's first process, or "-" if it has none, as a lost session.
func pidText(pid int) string {
	if pid == 0 {
		return "-"
	}
	return strconv.Itoa(pid)
}
