package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/plain"
)

// bashWords defines the functions of the package bash-completion that the script needs, unless that
// package is installed.
const bashWords = `declare -F _get_comp_words_by_ref >/dev/null || _get_comp_words_by_ref() {
    words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
    cur=${words[cword]} prev=${words[cword-1]}
}
declare -F _filedir >/dev/null || _filedir() {
    local IFS=$'\n'
    COMPREPLY=($(compgen "${1:--f}" -- "$cur"))
}
`

// addCompletion adds the command that prints completion scripts for shells.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	if all, _, err := root.Find([]string{"completion"}); err == nil {
		all.Example = "  source <(proxy completion bash)"
		all.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // a command that does not run does not check its arguments
		for _, shell := range all.Commands() {
			shell.Example = "  proxy completion " + shell.Name()
		}
	}
	bash, _, err := root.Find([]string{"completion", "bash"})
	if err != nil || bash.RunE == nil {
		return // this version of cobra works differently, so bash needs its package
	}
	script := bash.RunE
	bash.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := fmt.Fprint(cmd.OutOrStdout(), bashWords); err != nil {
			return err
		}
		return script(cmd, args)
	}
}

// sessionIDs completes the first argument with the ids of the sessions in a wanted state, and with HOST/ID
// of those of the gate.
func (a *App) sessionIDs(wanted func(protocol.State) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return append(a.localNames(cmd.Context(), wanted), a.gateNames(cmd.Context(), wanted, word)...), cobra.ShellCompDirectiveNoFileComp
	}
}

// Limits of the completion of a name.
const (
	completeLimit = time.Second // for the proxy, and again for the gate
	maxGateNames  = 1000
)

// localNames returns the ids of the sessions of this host, or of that of --on, in a wanted state.
func (a *App) localNames(ctx context.Context, wanted func(protocol.State) bool) (names []cobra.Completion) {
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	c, err := a.dial(ctx, nil) // completion must not start a process
	if err != nil {
		return nil
	}
	defer func() { _ = c.Close() }()
	list, err := c.List(ctx, "")
	if err != nil {
		return nil
	}
	for _, s := range list {
		if wanted(s.State) {
			names = append(names, cobra.CompletionWithDesc(string(s.ID), stateText(s)+", "+plain.Text(commandLine(s.Argv))))
		}
	}
	return names
}

// gateNames returns the names HOST/ID of the sessions in a wanted state that the gate lists, at most
// maxGateNames. After "HOST/" in the word they are those of that host.
func (a *App) gateNames(ctx context.Context, wanted func(protocol.State) bool, word string) (names []cobra.Completion) {
	cfg, err := a.Settings()
	if err != nil || cfg.Gate == "" || a.Host != "" {
		return nil
	}
	o, err := gateOptions(cfg)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	host, _ := splitName(word)
	rows, err := client.AllSessions(ctx, o, client.GateFilter{Host: host, Limit: maxGateNames})
	if err != nil {
		return nil
	}
	for _, r := range rows {
		if wanted(protocol.State(r.State)) {
			names = append(names, cobra.CompletionWithDesc(plain.Text(r.Host+"/"+string(r.ID)), plain.Text(r.State+", "+r.Command)))
		}
	}
	return names
}

// anyState accepts all sessions.
func anyState(protocol.State) bool { return true }

// exited accepts sessions that have exited.
func exited(s protocol.State) bool { return s == protocol.StateExited }

// alive accepts sessions that have not exited.
func alive(s protocol.State) bool { return !exited(s) }
