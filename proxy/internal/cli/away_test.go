package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

func TestAwayText(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	code := func(n int) *int { return &n }
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	shell := &protocol.SessionInfo{ID: "s", Argv: []string{"bash", "-l"}, State: protocol.StateRunning, CreatedAt: at(-7200)}
	frozen := *shell
	frozen.Frozen = true
	for _, tt := range []struct {
		name string
		info *protocol.SessionInfo
		is   absence
		want string
	}{
		{"no viewer yet", shell, absence{AwayInfo: &protocol.AwayInfo{}},
			"s (bash -l)\nno viewer has attached since the start, 2h0m0s ago\nrunning\nprinted nothing\n"},
		{"frozen", &frozen, absence{AwayInfo: &protocol.AwayInfo{}},
			"s (bash -l)\nno viewer has attached since the start, 2h0m0s ago\nrunning\nfrozen: proxy thaw s lets its programs continue\nprinted nothing\n"},
		{"much", shell, absence{
			AwayInfo: &protocol.AwayInfo{
				Left: &protocol.Left{At: at(-600)}, Printed: 3 << 20, Bells: 2, Ended: 3,
				Notifications: []protocol.Notification{{Title: "make", Body: "is \x1bdone"}},
				Commands: []protocol.CommandInfo{
					{Line: "make\x07", StartedAt: at(-300), FinishedAt: at(-290), ExitCode: code(2)},
					{FinishedAt: at(-280)},
				},
			},
			Lines: []string{"", "a\x1bb"},
		}, "s (bash -l)\nno viewer is attached since 2026-09-01T11:50:00Z, for 10m0s\nrunning\ncommands that have ended:\n  1 before these\n" +
			"  code 2 after 10s: make?\n  ended\nrang twice\ntold: make is ?done\nprinted 3.0 MiB\nlast lines:\n  \n  a?b\n"},
		{"back", shell, absence{AwayInfo: &protocol.AwayInfo{Left: &protocol.Left{At: at(-600)}, BackAt: at(-590), Printed: 5}},
			"s (bash -l)\nno viewer was attached from 2026-09-01T11:50:00Z on, for 10s; now there is one again\nrunning\nprinted 5 bytes\n"},
		{"ended", shell, absence{
			AwayInfo: &protocol.AwayInfo{Left: &protocol.Left{At: at(-600)}},
			Exit:     &protocol.ExitRecord{ExitCode: 3, StartedAt: at(-7200), ExitedAt: at(-60)},
		}, "s (bash -l)\nno viewer is attached since 2026-09-01T11:50:00Z, for 10m0s\nended 2026-09-01T11:59:00Z with code 3, after 1h59m0s\nprinted nothing\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			tt.is.ID = tt.info.ID
			text := strings.ReplaceAll(tt.want, "rang twice", "rang "+times(2))
			if err := tt.is.print(&b, tt.info, now); err != nil || b.String() != text {
				t.Errorf("%v\n%s\nwant\n%s", err, b.String(), text)
			}
		})
	}
}

func TestViewerEnv(t *testing.T) {
	got := viewerEnv([]string{"HOME=/h", "DISPLAY=:1", "COLORTERM=x", "SSH_TTY=", "XAUTHORITY=" + strings.Repeat("x", maxViewerValue+1), "SSH_AUTH_SOCK=/a=b"})
	if want := []string{"DISPLAY=:1", "SSH_TTY=", "SSH_AUTH_SOCK=/a=b"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var all []string
	for _, name := range followed {
		all = append(all, name+"="+strings.Repeat("x", maxViewerValue))
	}
	if err := protocol.ValidateViewerEnv(viewerEnv(all)); err != nil {
		t.Errorf("the largest environment of a viewer is refused: %v", err)
	}
}

// A shell sets the variables to the values of the viewer, and executes no part of them.
func TestPrintEnv(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	nasty := "it's $(touch " + dir + "/done) `touch " + dir + "/done`; \"\\' \\\\ \n touch " + dir + "/done #!é"
	env := []string{"DISPLAY=" + nasty, "SSH_AUTH_SOCK=/a", "X; touch " + dir + "/done=1", "LD_PRELOAD=/evil", "SSH_TTY="}
	for _, shell := range []string{"sh", "bash", "zsh", "fish"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // tests only the shells that are installed
		}
		words := "sh"
		run := `eval "$(cat)"; `
		if shell == "fish" {
			words, run = "fish", "source; "
		}
		var b bytes.Buffer
		testkit.Must(t, printEnv(&b, env, words, link))
		cmd := exec.Command(path, "-c", run+`printf '%s|' "$DISPLAY" "$SSH_AUTH_SOCK" "$SSH_TTY" "$XAUTHORITY" "$LD_PRELOAD"`)
		cmd.Stdin, cmd.Env = &b, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XAUTHORITY=old", "SSH_AUTH_SOCK=old"}
		out, err := cmd.CombinedOutput()
		if want := nasty + "|/a||||"; err != nil || string(out) != want {
			t.Errorf("%s: %v, %q, want %q", shell, err, out, want)
		}
		if _, err := os.Stat(dir + "/done"); err == nil {
			t.Fatalf("%s has executed a value", shell)
		}
	}
	// The agent is the link, even if the viewer has no agent.
	testkit.Must(t, os.Symlink("/a", link))
	for value, want := range map[string]string{"SSH_AUTH_SOCK=/a": link, "SSH_AUTH_SOCK=/b": "/b", "DISPLAY=": link} {
		var b bytes.Buffer
		if err := printEnv(&b, []string{value}, "sh", link); err != nil || !strings.Contains(b.String(), fmt.Sprintf("export SSH_AUTH_SOCK=%s\n", want)) {
			t.Errorf("%s: %v, %s", value, err, b.String())
		}
	}
}
