package e2e

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/escseq"
	"holdfast/shared/testkit"
)

// An asker is a program that may ask its terminal questions when it starts.
type asker struct {
	name    string // its name in the table, without the version
	version string // "" is what the program says itself
	argv    []string
	env     []string
	ready   string // its screen shows this when the program has started
	quit    string // keys that end the program, or "" to kill it
}

// askers are programs that CI installs.
func askers(w *world) []asker {
	text := w.Path("text")
	testkit.Must(w.T, os.WriteFile(text, []byte("the first line\n"), 0o600))
	return []asker{
		{name: "bash", argv: []string{"bash", "--norc", "--noprofile"}, ready: "$", quit: "exit\r"},
		{name: "btop", argv: []string{"btop", "--utf-force"}, ready: "menu", quit: "q"},
		{name: "fish", argv: []string{"fish", "--no-config"}, ready: "@", quit: "exit\r"},
		{name: "htop", argv: []string{"htop"}, ready: "F10Quit", quit: "q"},
		{name: "less", argv: []string{"less", text}, ready: "the first line", quit: "q"},
		{name: "mc", argv: []string{"mc", "-u"}, ready: "Quit", quit: "\x1b[21~"},
		{name: "nvim", argv: []string{"nvim", "-u", "NONE", "-i", "NONE", "-n", text}, ready: "the first line", quit: ":q!\r"},
		{name: "tmux", argv: []string{"tmux", "-S", w.Path("tmux"), "-f", os.DevNull, "new-session", "sh"}, ready: "0:sh", quit: "exit\r"},
		{name: "vim", argv: []string{"vim", "-u", "NONE", "-i", "NONE", "-N", "-n", text}, ready: "the first line", quit: ":q!\r"},
		{name: "zsh", argv: []string{"zsh", "-f"}, ready: "$", quit: "exit\r"},

		// These cannot be installed here. A shell prints what they print, according to their source.
		asks("fish", "4", "\x1b[?u\x1b[>0q\x1bP+q696e646e\x1b\\\x1bP+q71756572792d6f732d6e616d65\x1b\\\x1b]11;?\x1b\\\x1b[0c\x1b[6n"),
		asks("helix", "25.07", "\x1b[?u\x1b[?2026$p\x1b[?996n\x1b[48;2;59;34;76m\x1b[58:2::59:34:76m\x1bP$qm\x1b\\\x1b[m\x1b]11;?\x1b\\\x1b[c"),
		asks("nvim", "0.12", "\x1b[?69$p\x1b[?2026$p\x1b[?2027$p\x1b[?2031$p\x1b[?2048$p\x1b[0m\x1b[4:3m\x1bP$qm\x1b\\\x1b[m\x1b[?u\x1b[c"+
			"\x1b]11;?\x07\x1b[5n\x1bP+q5463\x1b\\\x1bP+q524742\x1b\\\x1bP+q73657472676266\x1b\\\x1bP+q73657472676262\x1b\\\x1bP+q4d73\x1b\\"+
			"\x1b[0m\x1b[48;2;1;2;3m\x1bP$qm\x1b\\\x1b[m"),
		asks("tmux", "3.6", "\x1b[?2031h\x1b[?996n\x1b[c\x1b[>c\x1b[>q\x1b]10;?\x1b\\\x1b]11;?\x1b\\"),
		asks("yazi", "26", "\x1b7\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[>q\x1b[16t\x1b]11;?\x07\x1b[?5522$p\x1b[0c\x1b8"),
		asks("zellij", "0.43", "\x1b[14t\x1b[16t\x1b]11;?\x1b\\\x1b]10;?\x1b\\\x1b]4;0;?\x1b\\\x1b]4;255;?\x1b\\\x1b[?2026$p"),
	}
}

// asks returns a program that prints the text as it is, and then ready.
func asks(name, version, text string) asker {
	const script = `stty raw -echo; printf %s "$1"; printf ready; exec cat >/dev/null`
	return asker{name: name, version: version, argv: []string{"sh", "-c", script, "sh", text}, ready: "ready"}
}

// Programs that start while nobody is attached get an answer to each question to their terminal, or the table in
// vt/README.md says why they do not wait for one. The table tells which of the programs asks what.
func TestQuestionsAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.checkQuestions(askers(w))
}

// TestMoreQuestionsAtStart is TestQuestionsAtStart for programs that are large, or that CI does not install.
func TestMoreQuestionsAtStart(t *testing.T) {
	if !isLong {
		t.Skip("installs 1.5 GB")
	}
	w := newWorld(t)
	w.checkQuestions(moreAskers(w))
}

// moreAskers installs programs, and returns them. Of Debian's programs it returns those that are installed.
func moreAskers(w *world) []asker {
	dir := w.T.TempDir()
	install := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			w.T.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	install("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "ink@8.0.0", "react@19", "@anthropic-ai/claude-code@2.1.332",
		"@openai/codex@0.169.0", "@google/gemini-cli@0.61.0", "opencode-ai@1.18.33", "@github/copilot@1.0.102", "@nushell/linux-x64@0.115.1")
	install("go", "install", "github.com/junegunn/fzf@v0.65.2")
	install("go", "install", "github.com/charmbracelet/gum@v0.17.0") // by bubbletea 1
	const ink = `import React from 'react'; import {render, Text, useInput} from 'ink';
render(React.createElement(() => { useInput(() => {}); return React.createElement(Text, {}, 'ink is ready'); }), {kittyKeyboard: {mode: 'auto'}});`
	for path, text := range map[string]string{
		filepath.Join(dir, "ink.mjs"):         ink,
		filepath.Join(w.Home, ".claude.json"): `{"hasCompletedOnboarding": true}`, // otherwise it ends without a network
	} {
		testkit.Must(w.T, os.WriteFile(path, []byte(text), 0o600))
	}
	module := func(path string) string { return filepath.Join(dir, "node_modules", path) }
	more := []asker{
		{name: "ink", version: "8.0", argv: []string{"node", filepath.Join(dir, "ink.mjs")}, env: []string{"TERM_PROGRAM=ghostty"}, ready: "ink is ready"},
		{name: "claude", version: "2.1", argv: []string{module("@anthropic-ai/claude-code-linux-x64/claude")}, env: []string{"DISABLE_AUTOUPDATER=1"}, ready: "trust"},
		{name: "codex", version: "0.169", argv: []string{"node", module("@openai/codex/bin/codex.js"), "--no-daemon"}, ready: "Welcome to Codex"},
		{name: "gemini", version: "0.61", argv: []string{"node", module("@google/gemini-cli/bundle/gemini.js")}, ready: "trust"},
		{name: "opencode", version: "1.18", argv: []string{module("opencode-linux-x64/bin/opencode")}, ready: "Ask anything"},
		{name: "copilot", version: "1.0", argv: []string{"node", module("@github/copilot/npm-loader.js")}, ready: "trust"},
		{name: "nu", version: "0.115", argv: []string{module("@nushell/linux-x64/bin/nu")}, ready: ">"},
		{name: "fzf", version: "0.65", argv: []string{"sh", "-c", "seq 9 | " + filepath.Join(dir, "fzf") + " --height 40%"}, ready: "9/9", quit: "\x03"},
		{name: "gum", version: "0.17", argv: []string{filepath.Join(dir, "gum"), "choose", "one", "two"}, ready: "two", quit: "\x03"},
	}
	for _, p := range []asker{
		{name: "emacs", argv: []string{"emacs", "-nw", "-Q"}, ready: "scratch"},
		{name: "kak", version: "2022", argv: []string{"kak", "-n"}, ready: "scratch", quit: ":q!\r"},
		{name: "micro", argv: []string{"micro"}, ready: "No name", quit: "\x11"},
	} {
		if _, err := exec.LookPath(p.argv[0]); err != nil {
			w.T.Log(err)
			continue
		}
		more = append(more, p)
	}
	return more
}

// checkQuestions runs programs while nobody is attached, and compares their questions with the table.
func (w *world) checkQuestions(programs []asker) {
	w.T.Helper()
	table := readQuestions(w.T)
	c := w.dial(client.Options{})
	exe, err := os.Executable()
	testkit.Must(w.T, err)
	var present []asker
	var missing []string
	for _, p := range programs { // all start at the same time
		if _, err := exec.LookPath(p.argv[0]); err != nil {
			missing = append(missing, p.name)
			continue
		}
		if p.version == "" {
			p.version = versionOf(w.T, p.argv[0])
		}
		id := fmt.Sprint("p", len(present))
		w.spawn(c, id, protocol.SpawnSpec{
			Argv: append([]string{exe, w.Path(id)}, p.argv...), Cwd: w.Home, Unattended: true,
			Env: append([]string{roleEnv + "=witness", "LANG=C.UTF-8", "PS1=$ "}, p.env...),
		})
		present = append(present, p)
	}
	for i, p := range present {
		w.checkDialogue(c, fmt.Sprint("p", i), p, table)
	}
	if len(missing) > 0 {
		w.T.Skipf("not installed: %v", missing)
	}
}

// checkDialogue checks what one program has asked until it was ready, and ends it.
func (w *world) checkDialogue(c *client.Client, id string, p asker, table questionTable) {
	w.T.Helper()
	w.shows(c, id, p.ready)
	name := p.name + " " + p.version
	var d dialogue
	var faults []string
	eventually(func() bool {
		d = readDialogue(w.T, w.Path(id))
		faults = table.faults(name, d)
		return len(faults) == 0 || len(table.unknown(d)) > 0
	})
	if p.quit != "" && len(faults) == 0 {
		testkit.Must(w.T, c.Type(w.ctx(), protocol.SessionID(id), []byte(p.quit)))
		if _, err := c.Wait(w.ctx(), protocol.SessionID(id), -1); err != nil {
			w.T.Fatalf("%s does not end by %q: %v", name, p.quit, err)
		}
		faults = table.unknown(readDialogue(w.T, w.Path(id)))
	}
	for _, fault := range faults {
		w.T.Errorf("%s %s", name, fault)
	}
	w.T.Logf("%s: %d questions, each answered within %v", name, len(d.questions), d.longest)
}

var firstNumber = regexp.MustCompile(`\d+(\.\d+)?`)

// versionOf returns the first two numbers of a program's version.
func versionOf(t testing.TB, program string) string {
	flag := "--version"
	if program == "tmux" {
		flag = "-V"
	}
	out, err := exec.Command(program, flag).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v", program, flag, err)
	}
	return string(firstNumber.Find(out))
}

// A questionTable is the table in vt/README.md: what programs ask, and what the session answers.
type questionTable map[string]tableRow

// A tableRow has the answer to a question, "" for none, and the programs that ask it.
type tableRow struct {
	answer string
	by     []string
}

// noQuestion is the row of the programs that ask nothing.
const noQuestion = "nothing"

// readQuestions reads both parts of the table. The second one has the questions without an answer.
func readQuestions(t testing.TB) questionTable {
	t.Helper()
	const file, title = "../../supervisor/internal/vt/README.md", "\n## What programs ask at their start\n"
	b, err := os.ReadFile(file)
	testkit.Must(t, err)
	_, text, found := strings.Cut(string(b), title)
	if !found {
		t.Fatalf("%s has no %q", file, title)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	table := questionTable{}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 || !strings.HasPrefix(cells[0], "| `") && cells[0] != "| "+noQuestion {
			continue
		}
		plain := func(cell string) string { return strings.Trim(strings.ReplaceAll(cell, `\|`, "|"), "`| ") }
		question, row := plain(cells[0]), tableRow{by: strings.Split(plain(cells[2]), ", ")}
		if strings.HasPrefix(cells[1], "`") {
			row.answer = plain(cells[1])
		} else if question != noQuestion { // the cells are the question, the programs and the reason
			row.by = strings.Split(plain(cells[1]), ", ")
			if len(plain(cells[2])) < 20 {
				t.Errorf("%s does not say why no program waits for an answer to %s", file, question)
			}
		}
		if _, twice := table[question]; twice {
			t.Errorf("%s has the question %s twice", file, question)
		}
		table[question] = row
	}
	if len(table) < 20 {
		t.Fatalf("%s: the table has %d rows", file, len(table))
	}
	return table
}

// unknown returns the faults of the questions that the table does not have.
func (table questionTable) unknown(d dialogue) (faults []string) {
	for _, q := range d.questions {
		if _, ok := table[q]; !ok {
			faults = append(faults, fmt.Sprintf("asks `%s`, which the table does not have; the answers are %q", q, d.answers))
		}
	}
	return faults
}

// faults compares a program's dialogue with the table.
func (table questionTable) faults(program string, d dialogue) []string {
	if faults := table.unknown(d); len(faults) > 0 {
		return faults
	}
	var faults []string
	answers := d.answers
	for _, q := range d.questions {
		switch want := table[q].answer; {
		case want == "":
		case len(answers) == 0:
			return append(faults, fmt.Sprintf("gets no answer to `%s`, want `%s`", q, want))
		case answers[0] != want:
			return append(faults, fmt.Sprintf("gets the answer `%s` to `%s`, want `%s`", answers[0], q, want))
		default:
			answers = answers[1:]
		}
	}
	if len(answers) > 0 {
		faults = append(faults, fmt.Sprintf("gets the answers %q that it has not asked for", answers))
	}
	asked := slices.Compact(slices.Sorted(slices.Values(d.questions)))
	if len(asked) == 0 {
		asked = []string{noQuestion}
	}
	var listed []string
	for _, q := range slices.Sorted(maps.Keys(table)) {
		if slices.Contains(table[q].by, program) {
			listed = append(listed, q)
		}
	}
	// A program of another version than that of the table may ask other questions of the table.
	if len(listed) > 0 && !slices.Equal(asked, listed) {
		faults = append(faults, fmt.Sprintf("asks %q; according to the table it asks %q", asked, listed))
	}
	return faults
}

// A remark is what a program or its terminal said at a moment.
type remark struct {
	At      time.Duration
	Program bool // the program said it, and not the terminal
	Data    []byte
}

// A dialogue has what a program has asked its terminal, and the answers, as the table spells them.
type dialogue struct {
	questions, answers []string
	longest            time.Duration // from the last question before an answer to the answer
}

// readDialogue reads what a witness has written so far.
func readDialogue(t testing.TB, path string) dialogue {
	t.Helper()
	f, err := os.Open(path)
	testkit.Must(t, err)
	defer f.Close()
	var d dialogue
	var asked time.Duration
	program, term := escseq.Tokenizer{Room: 1 << 10}, escseq.Tokenizer{Room: 1 << 10}
	for lines := json.NewDecoder(f); ; {
		var r remark
		if err := lines.Decode(&r); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return d
		} else if err != nil {
			t.Fatal(err)
		}
		tokens := &term
		if r.Program {
			tokens = &program
		}
		for i := 0; i < len(r.Data); {
			tok := tokens.Next(r.Data, i)
			i = tok.End
			switch text := spell(tok, string(tokens.Body())); {
			case !tok.Complete && tok.Final != escseq.ESC || tok.Kind <= escseq.Escape && tok.Final != 'Z':
			case r.Program && !statement.MatchString(text):
				d.questions, asked = append(d.questions, text), r.At
			case !r.Program:
				d.answers, d.longest = append(d.answers, text), max(d.longest, r.At-asked)
			}
		}
	}
}

// statement matches the sequences that no terminal answers. Programs print many others, so a sequence that is not in this
// list is a question until it is.
var statement = regexp.MustCompile(`^(` + strings.Join([]string{
	`CSI [\d;: ]*[@A-HJ-MPSTXZ` + "`" + `abdefgmrsu]`, // cursor, text, style
	`CSI (\? )?[\d; ]*[hl]`, `CSI \? [\d; ]*[rs]`,     // modes
	`CSI [<=>] [\d; ]*[mu]`, // keys
	`CSI ! p`, `CSI \d* ?(SP|") q`, `CSI \? 5 W`, `CSI (8|22|23)( ;.*)? t`,
	`OSC (0|1|2|7|8|9|66|104|11[0-2]|133|633|777)( ;.*)?`, `OSC (4|10|11|12|22|52|7501) ;[^?]*`,
	`CSI 0 % m`, `DCS z z`, // vim looks whether the terminal ignores them
	`DCS tmux.*`,
}, "|") + `)$`)

// spell returns a sequence as the table has it: with blanks between its parts, and without parts that differ from run to
// run.
func spell(tok escseq.Token, body string) string {
	switch tok.Kind {
	case escseq.CSI:
		text := body + string(rune(tok.Final))
		for _, r := range inCSI {
			text = r.from.ReplaceAllString(text, r.to)
		}
		return "CSI " + strings.Join(partOfCSI.FindAllString(text, -1), " ")
	case escseq.OSC:
		text := body
		for _, r := range inOSC {
			text = r.from.ReplaceAllString(text, r.to)
		}
		return "OSC " + strings.ReplaceAll(text, ";", " ; ")
	case escseq.DCS:
		return "DCS " + spellDCS(body)
	case escseq.APC:
		if strings.HasPrefix(body, "G") && strings.Contains(body, "a=q") {
			return "APC G a=q"
		}
		return "APC " + body
	}
	return fmt.Sprintf("%d %s", tok.Kind, body)
}

var (
	partOfCSI = regexp.MustCompile(`\d+|SP|row|column|flags|set|.`)
	inCSI     = []replacement{
		{regexp.MustCompile(` `), "SP"},
		{regexp.MustCompile(`^\d+;\d+R$`), "row;columnR"},
		{regexp.MustCompile(`^\?\d+u$`), "?flagsu"},
		{regexp.MustCompile(`;[12]\$y$`), ";set$$y"}, // or reset
	}
	inOSC = []replacement{
		{regexp.MustCompile(`^4;\d+;rgb:.*`), "4;N;rgb:RR/GG/BB"},
		{regexp.MustCompile(`^4;\d+;\?$`), "4;N;?"},
		{regexp.MustCompile(`^1[3-9];\?$`), "13 to 19;?"},
		{regexp.MustCompile(`^99;.*p=\?.*`), "99;p=?"},
	}
	nameOfKey = regexp.MustCompile(`^([k#%&*@FK].|P[SE])$`) // in termcap
)

type replacement struct {
	from *regexp.Regexp
	to   string
}

func spellDCS(body string) string {
	if names, ok := strings.CutPrefix(body, "+q"); ok {
		return "+ q " + unhex(names)
	}
	if values, ok := strings.CutPrefix(body, "1+r"); ok {
		name, value, _ := strings.Cut(values, "=")
		if value = unhex(value); strings.ContainsRune(value, '\x1b') {
			value = "SEQUENCE"
		}
		return "1 + r " + unhex(name) + "=" + value
	}
	if rest, ok := strings.CutPrefix(body, "1$r"); ok && strings.HasSuffix(rest, "m") {
		return "1 $ r SGR m"
	}
	if strings.HasPrefix(body, ">|holdfast") {
		return "> | holdfast(VERSION)"
	}
	return strings.Join(strings.Split(body, ""), " ")
}

// unhex decodes the name of a capability. Names of keys are all the same to the table.
func unhex(text string) string {
	b, err := hex.DecodeString(text)
	if err != nil {
		return text
	}
	if nameOfKey.Match(b) {
		return "KEY"
	}
	return string(b)
}

// witness runs a program on a terminal of its own. It passes on what the program and the session say to each other, and
// writes it to the file args[0] before.
func witness(args []string) error {
	log, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := setRaw(0); err != nil {
		return err
	}
	master, slave, err := openPTY()
	if err != nil {
		return err
	}
	size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	if err == nil {
		err = unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, size)
	}
	if err != nil {
		return err
	}
	begun := time.Now()
	var mu sync.Mutex
	lines := json.NewEncoder(log)
	pass := func(from io.Reader, to io.Writer, program bool) error {
		for buf := make([]byte, 64<<10); ; {
			n, err := from.Read(buf)
			if err != nil { // EIO is the end of the program
				return nil
			}
			mu.Lock()
			err = lines.Encode(remark{time.Since(begun), program, buf[:n]})
			mu.Unlock()
			if err == nil {
				_, err = to.Write(buf[:n])
			}
			if err != nil {
				return err
			}
		}
	}
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, roleEnv+"=") })
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := slave.Close(); err != nil {
		return err
	}
	go func() { _ = pass(os.Stdin, master, false) }() // it fails when the program has ended
	return errors.Join(pass(master, os.Stdout, true), cmd.Wait())
}

// setRaw makes the terminal fd pass on all bytes unchanged.
func setRaw(fd int) error {
	state, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	state.Iflag, state.Oflag, state.Lflag = 0, 0, 0
	state.Cc[unix.VMIN], state.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, state)
}
