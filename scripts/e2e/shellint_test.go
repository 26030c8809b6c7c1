package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A shellSession is a session of a shell with shell integration, which prints marks of its prompts and commands, in
// a home directory of its own.
type shellSession struct {
	t    *testing.T
	w    *world
	c    *client.Client
	id   protocol.SessionID
	pid  int // of the shell
	home string
	env  []string
	seen int // bytes of the output that were checked already
}

func newShellSession(t *testing.T, shell string) *shellSession {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		t.Skip(err)
	}
	if own := map[string]string{"bash": "[[ ${BASH_VERSINFO[0]} -lt 5 ]]", "fish": "string match -qr '^[4-9]' $version"}[shell]; own != "" {
		if exec.Command(shell, "-c", own).Run() == nil {
			t.Skip("this bash lacks features that are tested, or this fish prints marks by itself")
		}
	}
	w := newWorld(t)
	s := &shellSession{t: t, w: w, c: w.dial(client.Options{}), home: w.Home}
	s.env = []string{"HOME=" + s.home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "PS1=$ "}
	s.write(".zshrc", "PS1='%# '\n") // without .zshrc zsh asks questions
	return s
}

// write writes a file in the home directory.
func (s *shellSession) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.home, name)
	testkit.Must(s.t, os.MkdirAll(filepath.Dir(path), 0o700))
	testkit.Must(s.t, os.WriteFile(path, []byte(text), 0o600))
}

// start starts the shell, and returns the output up to its first prompt.
func (s *shellSession) start(argv ...string) string {
	s.t.Helper()
	s.spawn(true, argv...)
	return s.prompt()
}

func (s *shellSession) spawn(integration bool, argv ...string) {
	s.t.Helper()
	made, err := s.c.Spawn(s.w.ctx(), client.SpawnRequest{
		SpawnSpec:        protocol.SpawnSpec{Argv: argv, Cwd: s.home, Env: s.env, ClearInheritedEnv: true},
		EarlyExit:        none,
		ShellIntegration: integration,
	})
	testkit.Must(s.t, err)
	s.id, s.pid, s.seen = made.SessionID, made.PID, 0
	s.w.Adopt(lookup(made.PID))
}

// until waits until enough holds for the output since the last call, and returns this output.
func (s *shellSession) until(what string, enough func(news string) bool) string {
	s.t.Helper()
	news := ""
	if !eventually(func() bool {
		all, _, err := s.c.Output(s.w.ctx(), s.id)
		testkit.Must(s.t, err)
		news = string(all[s.seen:])
		return enough(news)
	}) {
		s.t.Fatalf("waiting for %s: got %q", what, news)
	}
	s.seen += len(news)
	return news
}

const promptStart, promptEnd = "\x1b]133;A\a", "\x1b]133;B\a"

// prompt returns the output up to the next prompt.
func (s *shellSession) prompt() string {
	s.t.Helper()
	return s.until("a prompt", func(news string) bool {
		return strings.LastIndex(news, promptStart) >= 0 && strings.LastIndex(news, promptEnd) > strings.LastIndex(news, promptStart)
	})
}

// prints waits until the shell has printed a text, and returns the output.
func (s *shellSession) prints(text string) string {
	s.t.Helper()
	return s.until(fmt.Sprintf("%q", text), func(news string) bool { return strings.Contains(news, text) })
}

// awaitIdle waits until the shell has one thread, which sleeps. Before an interrupt of a line this is the
// only safe state of fish 3: it notices the signal only if the signal ends its wait for input, so it loses an
// interrupt that comes while it draws the colours that another of its threads has computed.
func (s *shellSession) awaitIdle() {
	s.t.Helper()
	testkit.Eventually(s.t, limit, func() bool {
		state, _ := testkit.Stat(s.pid)
		return state == "S" && status(s.pid, "Threads") == "1"
	}, "the shell is idle")
}

func (s *shellSession) typ(text string) {
	s.t.Helper()
	testkit.Must(s.t, s.c.Type(s.w.ctx(), s.id, []byte(text)))
}

// runLine types a line, and returns the output up to the next prompt.
func (s *shellSession) runLine(line string) string {
	s.t.Helper()
	s.typ(strings.ReplaceAll(line, "\n", "\r") + "\r")
	return s.prompt()
}

var mark = regexp.MustCompile(`\x1b\](133;[^\a\x1b]*|633;[^\a\x1b]*)(?:\a|\x1b\\)`)

// marks returns the shell marks in an output. A prompt that is drawn again counts once.
func marks(out string) (all []string) {
	for _, m := range mark.FindAllStringSubmatch(out, -1) {
		drawn := strings.HasPrefix(m[1], "133;A") || m[1] == "133;B"
		if n := len(all); drawn && n > 0 && slices.Contains(all[max(0, n-2):], m[1]) {
			continue
		}
		all = append(all, m[1])
	}
	return all
}

// wantMarks fails the test unless the marks in an output are want.
func (s *shellSession) wantMarks(what, out string, want ...string) {
	s.t.Helper()
	if got := marks(out); !slices.Equal(got, want) {
		s.t.Errorf("%s: got %q, want %q in %q", what, got, want, out)
	}
}

// commandMarks returns the marks of a command and of the prompt after it.
func commandMarks(line string, code int) []string {
	return []string{"633;E;" + line, "133;C", fmt.Sprintf("133;D;%d", code), "133;A", "133;B"}
}

// Each shell must print the marks of each command, and no other marks.
func TestShellIntegration(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := newShellSession(t, shell)
			s.wantMarks("the first prompt", s.start(shell), "133;A", "133;B")
			s.wantMarks("an empty line", s.runLine(""), "133;A", "133;B")
			s.wantMarks("a command", s.runLine("true"), commandMarks("true", 0)...)
			s.wantMarks("one that fails", s.runLine("false"), commandMarks("false", 1)...)
			subshell, loop := "(exit 7)", "for i in 1 2; do\necho $i\ndone"
			if shell == "fish" {
				subshell, loop = "sh -c 'exit 7'", "for i in 1 2\necho $i\nend"
			}
			s.wantMarks("a code of its own", s.runLine(subshell), commandMarks(strings.ReplaceAll(subshell, ";", `\x3b`), 7)...)
			status := "$?"
			if shell == "fish" {
				status = "$status"
			}
			if out := s.runLine("echo code=" + status); !strings.Contains(out, "code=7\r\n") {
				t.Errorf("the exit code is lost: %q", out)
			}
			s.wantMarks("a pipeline", s.runLine("true | false"), commandMarks("true | false", 1)...)
			s.wantMarks("two commands", s.runLine("false; true"), commandMarks(`false\x3b true`, 0)...)
			s.wantMarks("an unknown one", s.runLine("no-such-command"), commandMarks("no-such-command", 127)...)
			s.wantMarks("a backslash", s.runLine(`echo 'a\b;c'`), commandMarks(`echo 'a\\b\x3bc'`, 0)...)

			out := s.runLine(loop)
			if got := marks(out); len(got) != 5 || !strings.HasPrefix(got[0], "633;E;for i in 1 2") || got[1] != "133;C" || got[2] != "133;D;0" {
				t.Errorf("the marks of a command of several lines are %q in %q", got, out)
			}
			if begin, end := strings.Index(out, "\x1b]133;C"), strings.Index(out, "\x1b]133;D"); !strings.Contains(out[begin:end], "1\r\n2\r\n") {
				t.Errorf("the output is not between the marks of its command: %q", out)
			}

			out = s.runLine("printf part") // zsh adds a mark of its own behind it
			if part, _, _ := strings.Cut(out, "\x1b]133;D;0"); !strings.HasSuffix(part, "part") {
				t.Errorf("output without a line end does not end the output of its command: %q", out)
			}

			s.typ("sh -c 'echo u\"\"p; exec sleep 100'\r")
			out = s.prints("up\r\n") // before that, the interrupt might reach the shell itself
			s.typ("\x03")
			s.wantMarks("an interrupted one", out+s.prompt(), commandMarks(`sh -c 'echo u""p\x3b exec sleep 100'`, 130)...)
			s.typ("echo not-this")
			s.prints("this")
			s.awaitIdle()
			s.typ("\x03")
			s.wantMarks("an interrupted line", s.prompt(), "133;A", "133;B")

			if out := s.runLine("mkdir 'ä b'; cd 'ä b'"); !regexp.MustCompile(`\x1b\]7;file://[^/]*` + regexp.QuoteMeta(s.home+"/%C3%A4%20b") + `(\a|\x1b\\)`).MatchString(out) {
				t.Errorf("the working directory is not reported: %q", out)
			}
			testkit.Eventually(t, limit, func() bool { // a viewer can have output before the screen
				info, err := s.c.SessionInfo(s.w.ctx(), s.id)
				return err == nil && info.CurrentCwd == s.home+"/ä b"
			}, "the session has the directory of its shell")

			// Child shells must not inherit the integration, and must not print marks.
			out = s.runLine("bash -c 'echo $0-ran' ; zsh -c 'echo zsh-ran'; fish -c 'echo fish-ran'; env | grep -ci 'zdotdir\\|__holdfast\\|prompt_command'")
			if got := marks(out); len(got) != 5 || !strings.Contains(out, "\r\n0\r\n") {
				t.Errorf("the marks with child shells are %q in %q", got, out)
			}
			s.typ("bash --norc\r")
			s.prints("\x1b]133;C")
			s.typ("echo nes''ted; exit 3\r")
			if got := marks(s.prompt()); !slices.Equal(got, []string{"133;D;3", "133;A", "133;B"}) {
				t.Errorf("the marks of a nested bash are %q", got)
			}
			s.typ("exit 12\r")
			if exit, err := s.c.Wait(s.w.ctx(), s.id, limit); err != nil || exit.ExitCode != 12 {
				t.Errorf("the exit is %+v, %v; want 12", exit, err)
			}
		})
	}
}

// The shell must read each of the user's files once, in the shell's own order.
func TestShellIntegrationFiles(t *testing.T) {
	t.Parallel()
	all := map[string][]string{
		"bash": {".bashrc", ".bash_profile", ".bash_login", ".profile", ".bash_logout"},
		"zsh":  {".zshenv", ".zprofile", ".zshrc", ".zlogin", "z/.zshenv", "z/.zprofile", "z/.zshrc", "z/.zlogin"},
		"fish": {".config/fish/conf.d/a.fish", ".config/fish/config.fish"},
	}
	for _, tt := range []struct {
		name, argv string
		env        string
		without    []string // files that do not exist
		zshenv     string
		want       string
	}{
		{name: "bash", argv: "bash", want: ".bashrc"},
		{name: "bash login", argv: "bash -l", want: ".bash_profile"},
		{name: "bash login, no .bash_profile", argv: "bash -l -i", without: []string{".bash_profile"}, want: ".bash_login"},
		{name: "bash login, .profile alone", argv: "bash --login", without: []string{".bash_profile", ".bash_login"}, want: ".profile"},
		{name: "zsh", argv: "zsh", want: ".zshenv .zshrc"},
		{name: "zsh login", argv: "zsh -l", want: ".zshenv .zprofile .zshrc .zlogin"},
		{name: "ZDOTDIR", argv: "zsh -l", env: "ZDOTDIR=HOME/z", want: "z/.zshenv z/.zprofile z/.zshrc z/.zlogin"},
		{name: "ZDOTDIR of .zshenv", argv: "zsh -l", zshenv: "export ZDOTDIR=$HOME/z", want: ".zshenv z/.zprofile z/.zshrc z/.zlogin"},
		{name: "fish", argv: "fish", want: ".config/fish/conf.d/a.fish .config/fish/config.fish"},
		{name: "fish login", argv: "fish -l", want: ".config/fish/conf.d/a.fish .config/fish/config.fish"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			argv := strings.Fields(tt.argv)
			s := newShellSession(t, argv[0])
			for _, name := range all[argv[0]] {
				if !slices.Contains(tt.without, name) {
					s.write(name, "echo READ "+name+"\n")
				}
			}
			if tt.zshenv != "" {
				s.write(".zshenv", "echo READ .zshenv\n"+tt.zshenv+"\n")
			}
			if tt.env != "" {
				s.env = append(s.env, strings.ReplaceAll(tt.env, "HOME", s.home))
			}
			out := s.start(argv...)
			var read []string
			for _, m := range regexp.MustCompile(`READ (\S+)`).FindAllStringSubmatch(out, -1) {
				read = append(read, m[1])
			}
			if got := strings.Join(read, " "); got != tt.want {
				t.Errorf("the shell has read %q, want %q in %q", got, tt.want, out)
			}
			s.wantMarks("a command", s.runLine("false"), commandMarks("false", 1)...)
			if argv[0] == "zsh" {
				want := "[]"
				if strings.Contains(tt.env+tt.zshenv, "ZDOTDIR") {
					want = "[" + s.home + "/z]"
				}
				if out := s.runLine(`zsh -c 'echo "[$ZDOTDIR]"'`); !strings.Contains(out, want+"\r\n") {
					t.Errorf("ZDOTDIR of a child is not %s: %q", want, out)
				}
			}
			if tt.argv == "bash -l" {
				s.typ("logout\r")
				if out := s.prints(".bash_logout"); !strings.Contains(out, "READ .bash_logout") {
					t.Errorf(".bash_logout was not read: %q", out)
				}
			}
		})
	}
}

// The user's configuration must still work: an exit code in the prompt, prompts that are computed each time,
// traps, strict modes.
func TestShellIntegrationOfUsers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, shell, rc string
		prompt, after   string // the first prompt, and the prompt after "(exit 7)"
	}{
		{name: "a prompt with a code", shell: "bash", rc: `PS1='<$?> '`, prompt: "<0> ", after: "<7> "},
		{name: "one that is made each time", shell: "bash", rc: `f() { PS1="<$?> "; }; PROMPT_COMMAND=f`, prompt: "<0> ", after: "<7> "},
		{name: "with a blank command at its end", shell: "bash", rc: `f() { PS1="<$?> "; }; PROMPT_COMMAND='f; '`, prompt: "<0> ", after: "<7> "},
		{name: "an array", shell: "bash", rc: `f() { PS1="<$?"; }; g() { PS1="$PS1|$?> "; }; PROMPT_COMMAND=(f g)`, prompt: "<0|0> ", after: "<7|7> "},
		{name: "one that is added to each time", shell: "bash", rc: `PS1='> '; f() { PS1="<${PS1#<}"; }; PROMPT_COMMAND=f`, prompt: "<> ", after: "<> "},
		{name: "strict", shell: "bash", rc: `set -u; PS1='<$?> '; PROMPT_COMMAND=true; trap 'x=$x' ERR; x=; [ -e /none ] && :`, prompt: "<", after: "<7> "},
		{name: "errexit", shell: "bash", rc: `PS1='<> '; set -e; [ -e /none ] && :`, prompt: "<> "},
		{name: "no promptvars", shell: "bash", rc: `shopt -u promptvars; PS1='<> '`, prompt: "<> ", after: "<> "},
		{name: "words as of an attribute", shell: "bash", rc: `PS1='<$?> '; PROMPT_COMMAND='true r PROMPT_COMMAND'`, prompt: "<0> ", after: "<7> "},
		{name: "aliases", shell: "bash", rc: `alias local=false return=false printf=false builtin=false; history() { false; }; PS1='<> '`, prompt: "<> ", after: "<> "},
		{name: "PS0", shell: "bash", rc: `PS0='[run]'; PS1='<> '`, prompt: "<> ", after: "<> "},
		{name: "a DEBUG trap", shell: "bash", rc: `PS1='<$n> '; n=0; trap '[[ $BASH_COMMAND != "(exit"* ]] || n=1; n=$n' DEBUG`, prompt: "<0> ", after: "<"},
		{name: "an exported prompt command", shell: "bash", rc: `export PROMPT_COMMAND=true; PS1='<$?> '`, prompt: "<0> ", after: "<7> "},
		{name: "a prompt with a code", shell: "zsh", rc: `PS1='<%?> '`, prompt: "<0> ", after: "<7> "},
		{name: "one that is made each time", shell: "zsh", rc: `precmd() { PS1="<$?> " }`, prompt: "<0> ", after: "<7> "},
		{name: "made by a hook behind ours", shell: "zsh", rc: `f() { PS1="<$?> " }; autoload -Uz add-zsh-hook; add-zsh-hook precmd f`, prompt: "<0> ", after: "<7> "},
		{name: "substituted", shell: "zsh", rc: `setopt prompt_subst; PS1='<$(print -n $?)> '`, prompt: "<0> ", after: "<7> "},
		{name: "strict", shell: "zsh", rc: `set -u; PS1='<%?> '; [[ -e /none ]] && :`, prompt: "<", after: "<7> "},
		{name: "other arrays and words", shell: "zsh", rc: `setopt ksh_arrays sh_word_split null_glob warn_create_global; PS1='<%?> '`, prompt: "<0> ", after: "<7> "},
		{name: "a lone percent", shell: "zsh", rc: `PS1='<> %'`, prompt: "<> %", after: "<> %"},
		{name: "aliases", shell: "zsh", rc: `alias -g print=false; alias emulate=false; PS1='<%?> '`, prompt: "<0> ", after: "<7> "},
		{name: "a widget of the same place", shell: "zsh", rc: `zle-line-init() { : }; zle -N zle-line-init; PS1='<%?> '`, prompt: "<0> ", after: "<7> "},
		{name: "a prompt with a code", shell: "fish", rc: `function fish_prompt; echo -n "<$status|$pipestatus> "; end`, prompt: "<0|0> ", after: "<7|7> "},
		{name: "made anew", shell: "fish", rc: `function fish_prompt; echo -n "<> "; function fish_prompt; echo -n "<$status> "; end; end`, prompt: "<> ", after: "<7> "},
	} {
		t.Run(tt.shell+"/"+tt.name, func(t *testing.T) {
			t.Parallel()
			s := newShellSession(t, tt.shell)
			rc := map[string]string{"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}[tt.shell]
			s.write(rc, tt.rc+"\n")
			out := s.start(tt.shell)
			s.wantMarks("the first prompt", out, "133;A", "133;B")
			if got := shown(out); !strings.HasPrefix(got, tt.prompt) {
				t.Errorf("the first prompt is %q in %q", got, out)
			}
			if tt.after == "" {
				s.wantMarks("a command", s.runLine("true"), commandMarks("true", 0)...)
				return
			}
			line := "(exit 7)"
			if tt.shell == "fish" {
				line = "sh -c 'exit 7'"
			}
			out = s.runLine(line)
			if want := commandMarks(strings.ReplaceAll(line, ";", `\x3b`), 7); !slices.Equal(marks(out), want) && tt.name != "no promptvars" {
				t.Errorf("got %q, want %q in %q", marks(out), want, out)
			}
			if got := shown(out); !strings.HasPrefix(got, tt.after) {
				t.Errorf("the next prompt is %q in %q", got, out)
			}
			if strings.Contains(out, "__holdfast") {
				t.Errorf("the output contains names of the integration: %q", out)
			}
		})
	}
}

var sequence = regexp.MustCompile(`\x1b\][^\a\x1b]*(\a|\x1b\\)|\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()]?[A-Z0-9=>]`)

// shown returns the text of the last prompt in an output.
func shown(out string) string {
	_, prompt, _ := cutLast(out, promptStart)
	prompt, _, _ = strings.Cut(prompt, promptEnd)
	return strings.TrimLeft(sequence.ReplaceAllString(prompt, ""), "\r")
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// The integration must not change a read-only PROMPT_COMMAND, and a fish user must be able to save the
// prompt.
func TestShellIntegrationLeavesUsers(t *testing.T) {
	t.Parallel()
	t.Run("bash", func(t *testing.T) {
		t.Parallel()
		s := newShellSession(t, "bash")
		s.write(".bashrc", "PROMPT_COMMAND=true; readonly PROMPT_COMMAND; PS1='<> '\n")
		s.spawn(true, "bash")
		if out := s.prints("<> "); strings.Contains(out, "readonly") || strings.Contains(out, "\x1b]133") {
			t.Errorf("the output with a read-only PROMPT_COMMAND is %q", out)
		}
	})
	t.Run("fish", func(t *testing.T) {
		t.Parallel()
		s := newShellSession(t, "fish")
		s.write(".config/fish/config.fish", "function fish_prompt; echo -n '<> '; end\n")
		s.start("fish")
		s.wantMarks("a command", s.runLine("funcsave fish_prompt"), commandMarks("funcsave fish_prompt", 0)...)
		s.wantMarks("the next", s.runLine("true"), commandMarks("true", 0)...)
		saved, err := os.ReadFile(filepath.Join(s.home, ".config/fish/functions/fish_prompt.fish"))
		if err != nil || !strings.Contains(string(saved), "<> ") || strings.Contains(string(saved), "holdfast") {
			t.Errorf("the saved prompt is %q, %v", saved, err)
		}
	})
}

// The marks must not contain a command that the shell keeps out of its history.
func TestShellIntegrationSecrets(t *testing.T) {
	t.Parallel()
	for shell, rc := range map[string]string{"bash": "HISTCONTROL=ignoreboth", "zsh": "setopt hist_ignore_space; HISTSIZE=10", "fish": ""} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := newShellSession(t, shell)
			s.write(map[string]string{"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}[shell], rc+"\n")
			s.start(shell)
			s.wantMarks("a command", s.runLine("true"), commandMarks("true", 0)...)
			s.wantMarks("a secret", s.runLine(" false"), "133;C", "133;D;1", "133;A", "133;B")
			s.wantMarks("the next", s.runLine("echo next"), commandMarks("echo next", 0)...)
		})
	}
}

// The integration must write no files beside those of the shell itself. A session that is started again must
// print marks too, and ls must show the command as it was requested.
func TestShellIntegrationLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			files := func(integration bool) (found []string) {
				s := newShellSession(t, shell)
				s.spawn(integration, shell, "-l")
				if integration {
					s.prompt()
				}
				s.typ("exit\r")
				if _, err := s.c.Wait(s.w.ctx(), s.id, limit); err != nil {
					t.Fatal(err)
				}
				if err := filepath.WalkDir(s.home, func(path string, e fs.DirEntry, err error) error {
					found = append(found, strings.TrimPrefix(path, s.home))
					return err
				}); err != nil {
					t.Fatal(err)
				}
				if !integration {
					return found
				}
				if _, err := s.c.Reopen(s.w.ctx(), s.id, protocol.RespawnSpec{}, none); err != nil {
					t.Fatal(err)
				}
				s.seen = 0
				s.prompt()
				s.wantMarks("once more", s.runLine("true"), commandMarks("true", 0)...)
				if r := s.w.Must("proxy", "ls"); !regexp.MustCompile(`(?m) ` + shell + ` -l$`).MatchString(r) {
					t.Errorf("ls: %s", r)
				}
				return found
			}
			if with, without := files(true), files(false); !slices.Equal(with, without) {
				t.Errorf("files with the integration %q, without it %q", with, without)
			}
		})
	}
}

// The integration must be active only if a flag or the setting asks for it.
func TestShellIntegrationIsAsked(t *testing.T) {
	t.Parallel()
	s := newShellSession(t, "bash")
	s.w.Env = append(s.w.Env, "HOME="+s.home, "SHELL=/bin/bash", "TERM=xterm-256color", "LANG=C.UTF-8")
	s.write(".profile", "PS1='ready> '\n")
	for i, tt := range []struct {
		setting string
		args    []string
		want    bool
	}{
		{"", nil, false},
		{"", []string{"--shell-integration"}, true},
		{`{"shell_integration": true}`, nil, true},
		{`{"shell_integration": true}`, []string{"--shell-integration=false"}, false},
		{`{"shell_integration": true}`, []string{"--", "bash", "--norc"}, false},
	} {
		if tt.setting != "" {
			testkit.Must(t, os.WriteFile(s.w.Path("holdfast.json"), []byte(tt.setting), 0o600))
		}
		s.id, s.seen = protocol.SessionID(fmt.Sprintf("s%d", i)), 0
		s.w.Must("proxy", append([]string{"new", "-d", "--id", string(s.id), "--env", "PS1=ready> "}, tt.args...)...)
		s.prints("ready> ")
		s.typ("echo do''ne\r")
		out := s.until("the next prompt", func(news string) bool {
			_, behind, found := strings.Cut(news, "done\r\n")
			return found && strings.Contains(behind, "ready> ")
		})
		if got := strings.Contains(out, "\x1b]133;C"); got != tt.want {
			t.Errorf("setting %s, arguments %q: marks printed: %v, in %q", tt.setting, tt.args, got, out)
		}
	}
}

// bash before 4.4 has no PS0, and bash before 5.1 has no array of prompt commands. The code for these
// versions works in a newer bash too, so it is tested there.
func TestShellIntegrationOfOldBash(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, rc, prompt string }{
		{"plain", "PS1='<$?> '", "<7> "},
		{"a prompt command", `f() { PS1="<$?> "; }; PROMPT_COMMAND='f; '`, "<7> "},
		{"a DEBUG trap", `n=0; trap 'n=$((n+1))' DEBUG; PS1='<$((n > 0))> '`, "<1> "},
		{"strict", `set -u; PS1='<$?> '; [[ -e /none ]] && :`, "<7> "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newShellSession(t, "bash")
			s.start("bash")
			found, err := filepath.Glob(s.w.Path("shell-*/bash*"))
			if err != nil || len(found) != 3 {
				t.Fatalf("the files of the integration are %q, %v; want 3", found, err)
			}
			for _, path := range found {
				script, err := os.ReadFile(path)
				testkit.Must(t, err)
				old := regexp.MustCompile(`(BASH_VERSINFO\[0\]\} -(?:gt|eq)) \d`).ReplaceAllString(string(script), "$1 99")
				if old == string(script) && filepath.Base(path) == "bash" {
					t.Fatal("the script contains no comparison of versions")
				}
				s.write("old/"+filepath.Base(path), old)
			}
			s.write(".bashrc", tt.rc+"\n")
			s.spawn(false, "bash", "--init-file", filepath.Join(s.home, "old/bash-rc"))
			s.wantMarks("the first prompt", s.prompt(), "133;A", "133;B")
			s.wantMarks("an empty line", s.runLine(""), "133;A", "133;B")
			s.wantMarks("a command", s.runLine("true"), commandMarks("true", 0)...)
			s.wantMarks("lines that are one", s.runLine("for i in 1 2; do\necho $i\ndone"), commandMarks(`for i in 1 2\x3b do echo $i\x3b done`, 0)...)
			s.wantMarks("a pipeline", s.runLine("true | sh -c 'exit 5'"), commandMarks("true | sh -c 'exit 5'", 5)...)
			out := s.runLine("sh -c 'exit 7'")
			s.wantMarks("a code", out, commandMarks("sh -c 'exit 7'", 7)...)
			if got := shown(out); got != tt.prompt {
				t.Errorf("the next prompt is %q in %q", got, out)
			}
		})
	}
}
