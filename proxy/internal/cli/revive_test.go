package cli

import (
	"errors"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/config"
)

// A lost session is started again with its own command only if the user has chosen that.
// demand: D1
func TestRestartArgv(t *testing.T) {
	shell := []string{config.LoginShell(), "-l"}
	resume := map[string]string{labelResume: `["a", "b c"]`}
	with := func(labels map[string]string, way string) map[string]string {
		all := map[string]string{labelRevive: way}
		for k, v := range labels {
			all[k] = v
		}
		return all
	}
	var own []string // the supervisor has the session's own command
	failure := []string{"failure"}
	for name, tt := range map[string]struct {
		setting config.Revive
		argv    []string
		labels  map[string]string
		want    []string
	}{
		"by default":                   {config.ReviveAsk, []string{"make"}, nil, shell},
		"the command of the label":     {config.ReviveAsk, []string{"make"}, resume, []string{"a", "b c"}},
		"a command line":               {config.ReviveAsk, []string{"make"}, map[string]string{labelResume: "a | b"}, []string{"sh", "-c", "a | b"}},
		"no command":                   {config.ReviveAsk, []string{"make"}, map[string]string{labelResume: "[1"}, failure},
		"a template":                   {config.ReviveAsk, []string{"/opt/bin/claude", "-v"}, map[string]string{"conversation": "7"}, []string{"claude", "--resume", "7"}},
		"a template without its label": {config.ReviveAsk, []string{"claude"}, nil, shell},
		"a shell by the setting":       {config.ReviveShell, []string{"make"}, resume, shell},
		"its own command":              {config.ReviveArgv, []string{"make", "all"}, nil, own},
		"its own command by label":     {config.ReviveShell, []string{"make"}, with(nil, "argv"), own},
		"a shell by label":             {config.ReviveArgv, []string{"make"}, with(resume, "shell"), shell},
		"an invalid label":             {config.ReviveArgv, []string{"make"}, with(nil, "always"), shell},
		"the label before the command": {config.ReviveArgv, []string{"make"}, resume, []string{"a", "b c"}},
		"a secret that is not stored":  {config.ReviveArgv, []string{"tool", "--token=********"}, nil, failure},
	} {
		s := &protocol.SessionInfo{ID: "s", Argv: tt.argv, Labels: tt.labels}
		got, err := restartArgv(s, config.Config{Revive: tt.setting}, []string{config.LoginShell(), "-l"})
		var usage *exitcode.Error
		if errors.As(err, &usage) {
			got = failure
		}
		if !slices.Equal(got, tt.want) || err != nil && usage == nil {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tt.want)
		}
	}
}

// A session that another command revives or forgets meanwhile does not fail revive --all; other errors do.
func TestReviveAllBesideAnother(t *testing.T) {
	for name, tt := range map[string]struct {
		state protocol.State // when the session is asked for
		code  protocol.Code  // of the start
		fails bool
	}{
		"is being started": {protocol.StateLost, protocol.CodeSessionExists, false},
		"runs since then":  {protocol.StateLost, protocol.CodeSessionRunning, false},
		"runs":             {protocol.StateRunning, "", false},
		"is forgotten":     {protocol.StateLost, protocol.CodeSessionNotFound, false},
		"cannot start":     {protocol.StateLost, protocol.CodeSpawnFailed, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := proxyOf(t, func(request string, id protocol.Request) protocol.Message {
				switch request {
				case "list":
					return api.Sessions{Request: id, Sessions: []protocol.SessionInfo{{ID: "s", State: protocol.StateLost}}}
				case "info":
					return api.Session{Request: id, Session: protocol.SessionInfo{ID: "s", State: tt.state}}
				}
				return api.Error{Request: id, Error: *protocol.Errorf(tt.code, "no start")}
			})
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			if err := newApp(nil).reviveAll(cmd, c, config.Config{}); (err != nil) != tt.fails {
				t.Errorf("revive --all: %v", err)
			}
		})
	}
}
