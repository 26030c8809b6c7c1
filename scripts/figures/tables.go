package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A table is a table of the page, with the command that measures its figures.
type table struct {
	name string
	env  []string
	args []string // of go
	head []string
	rows [][]cell
}

// command returns the command as a user types it.
func (t table) command() string {
	words := append([]string{}, t.env...)
	words = append(words, "go")
	for _, arg := range t.args {
		if strings.ContainsAny(arg, "^$()|") {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// A cell is fixed text, or a figure that is read from the output of the command.
type cell struct {
	text string
	from *regexp.Regexp // finds the figure; nil: the cell is text
	form func(string) (string, error)
}

func words(text string) cell { return cell{text: text} }

// metric is a value that a benchmark reports, such as "local-p50-µs" of "Gate/echo".
func metric(benchmark, unit string, form func(string) (string, error)) cell {
	pattern := `(?m)^Benchmark` + benchmark + `(?:-\d+)?\s.*?\s([0-9.e+-]+) ` + regexp.QuoteMeta(unit) + `(?:\s|$)`
	return cell{from: regexp.MustCompile(pattern), form: form, text: unit}
}

// logged is a duration that a test logs; pattern has a group that matches it.
func logged(pattern string) cell {
	return cell{from: regexp.MustCompile(pattern), form: duration, text: pattern}
}

// rounded writes a number with digits behind the point, and a unit.
func rounded(digits int, unit string) func(string) (string, error) {
	return func(s string) (string, error) {
		f, err := strconv.ParseFloat(s, 64)
		return strconv.FormatFloat(f, 'f', digits, 64) + unit, err
	}
}

var (
	ratio  = rounded(2, "")
	count  = rounded(0, "")
	micros = rounded(0, " µs")
	speed  = rounded(0, " MB/s")
)

// millis writes microseconds in milliseconds.
func millis(s string) (string, error) {
	f, err := strconv.ParseFloat(s, 64)
	digits := 1
	if f >= 100_000 {
		digits = 0
	}
	return strconv.FormatFloat(f/1000, 'f', digits, 64) + " ms", err
}

// duration writes a duration of Go in seconds or milliseconds.
func duration(s string) (string, error) {
	d, err := time.ParseDuration(s)
	if d >= time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds()), err
	}
	return fmt.Sprintf("%.0f ms", d.Seconds()*1000), err
}

// text returns the table with the figures of an output, and the machine below it.
func (t table) text(output, machine string) (string, error) {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	line(strings.Split(strings.Repeat("---,", len(t.head)-1)+"---", ","))
	for _, row := range t.rows {
		var cells []string
		for _, c := range row {
			value := c.text
			if c.from != nil {
				m := c.from.FindStringSubmatch(output)
				if m == nil {
					return "", fmt.Errorf("the output for the table %s lacks %s", t.name, c.text)
				}
				var err error
				if value, err = c.form(m[1]); err != nil {
					return "", fmt.Errorf("the output for the table %s has %q for %s: %w", t.name, m[1], c.text, err)
				}
			}
			cells = append(cells, value)
		}
		line(cells)
	}
	fmt.Fprintf(&b, "\nMeasured with %s.\n", cmp.Or(machine, "an unknown machine"))
	return strings.ReplaceAll(b.String(), "|  |", "| |"), nil
}

// bench returns the arguments of go for a benchmark of the programs.
func bench(name string) []string {
	return []string{"test", "-run", "^$", "-bench", "^Benchmark" + name + "$", "-benchtime", "1x", "./scripts/e2e"}
}

// ofGate returns a row of the comparison of the three ways to a host.
func ofGate(label, goal, benchmark, suffix string, forms ...func(string) (string, error)) []cell {
	row := []cell{words(label), words(goal)}
	for i, route := range []string{"local", "gate", "ssh"} {
		row = append(row, metric("Gate/"+benchmark, route+suffix, forms[min(i, len(forms)-1)]))
	}
	return row
}

// ofTerminal returns a row of the comparison of the programs that hold terminals.
func ofTerminal(label, benchmark, suffix string, form func(string) (string, error)) []cell {
	row := []cell{words(label)}
	for _, holder := range []string{"holdfast", "tmux", "dtach", "relay"} {
		row = append(row, metric("Terminal/"+benchmark, holder+suffix, form))
	}
	return row
}

// ofDay returns a row of the comparison of the agents: a task of the day with the name task, or a suffix of the unit.
func ofDay(label, task, suffix string, form func(string) (string, error)) []cell {
	row := []cell{words(label)}
	for _, agent := range []string{"holdfast", "tmux", "tmux5", "thrifty"} {
		row = append(row, metric("Agent/"+strings.ReplaceAll(task, " ", "_"), agent+suffix, form))
	}
	return row
}

// dayTasks returns a row for each task of the day, and those of the whole day.
func dayTasks() (rows [][]cell) {
	for _, task := range []string{
		"descriptions of the tools", "look around", "git status, diff, log", "dev server", "compile error and its mend", "tests", "long build", "download with progress",
		"questions of a script", "exit code", "vim", "less", "REPL", "a shell with a state", "commit and push", "top",
	} {
		rows = append(rows, ofDay(task, task, "-tokens", count))
	}
	return append(rows,
		ofDay("the whole day", "day", "-tokens", count),
		ofDay("tokens of `holdfast mcp` ÷ those (goal: at most 0.2 of each second)", "day", "-share", ratio),
		ofDay("the same in bytes", "day", "-share-bytes", ratio),
	)
}

var tables = []table{
	{
		name: "store", args: bench("Durable"), head: []string{"figure", "goal", "measured"},
		rows: [][]cell{
			{words("`screen/off-cpu`: CPU time of the supervisor with `screen` ÷ with `off`"), words(""), metric("Durable", "screen/off-cpu", ratio)},
			{words("`full/off-cpu`: the same with `full`"), words(""), metric("Durable", "full/off-cpu", ratio)},
			{words("`screen/off`: speed with `screen` ÷ speed with `off`"), words("at least 0.95"), metric("Durable", "screen/off", ratio)},
			{words("`full/off`: the same with `full`"), words("at least 0.8"), metric("Durable", "full/off", ratio)},
			{words("`log-disk/output`: length of the files of the build log ÷ its length"), words("at most 0.25"), metric("Durable", "log-disk/output", ratio)},
			{words("`log-missing/output`: part of the build log that is not stored"), words("0"), metric("Durable", "log-missing/output", count)},
			{words("`silent-write_bytes`: bytes that the supervisor writes to the disk in 5 s of silence"), words("0"), metric("Durable", "silent-write_bytes", count)},
			{words("`silent-syscw`: all its calls that write, also to sockets and memory"), words(""), metric("Durable", "silent-syscw", count)},
		},
	},
	{
		name: "past", env: []string{"HOLDFAST_LONG=1"}, head: []string{"figure", "goal", "measured"},
		args: []string{"test", "-count", "1", "-v", "-run", "^(TestLargePast|TestAnyOffset)$", "./supervisor/internal/replay"},
		rows: [][]cell{
			{words("a screen at an offset, 99 of 100"), words("at most 50 ms"), logged(`screens: .*; p50 \S+, p99 (\S+)`)},
			{words("a search for a pattern with a literal text"), words("at most 3 s"), logged(`search for "needle": (\S+),`)},
			{words("a search for a pattern without one"), words(""), logged(`search for "needle\|\[xyz\]adel": (\S+),`)},
		},
	},
	{
		name: "host", args: bench("Gate"), head: []string{"figure", "goal", "by its socket", "through a gate", "by ssh"},
		rows: [][]cell{
			ofGate("echo of a key, median", "at most 150 µs more than by its socket", "echo", "-p50-µs", micros),
			ofGate("echo of a key, 99 of 100", "at most 500 µs more", "echo", "-p99-µs", micros),
			ofGate("from the first connection to the screen, median", "at most 5 ms more", "attach", "-p50-µs", millis),
			ofGate("from the first connection to the screen, 99 of 100", "at most 25 ms more", "attach", "-p99-µs", millis),
			ofGate("output that a viewer reads", "at least 0.8 of that by its socket", "drain", "-MB/s", speed),
		},
	},
	{
		name: "terminal", args: bench("Terminal"), head: []string{"figure", "`holdfast attach`", "`tmux attach`", "`dtach -a`", "relay"},
		rows: [][]cell{
			ofTerminal("echo of a key, median", "echo", "-p50-µs", micros),
			ofTerminal("echo of a key, 99 of 100", "echo", "-p99-µs", micros),
			ofTerminal("output with a viewer", "drain", "-MB/s", speed),
			{
				words("from the start of the command to the last byte of the screen, with 1,000 lines above it in Holdfast"), metric("Terminal/attach", "holdfast-p50-µs", millis),
				metric("Terminal/attach", "tmux-p50-µs", millis), words("shows no screen"), metric("Terminal/attach", "relay-p50-µs", millis),
			},
			ofTerminal("processor time of the processes that hold the program, for a byte of it", "drain", "-ns/B", rounded(1, " ns")),
		},
	},
	{
		name: "start", args: bench("Start"),
		head: []string{"`tmux -V`", "`holdfast --version`", "`holdfast ls`", "`supervisor --version`", "`proxy --version`", "`proxy ls`"},
		rows: [][]cell{{
			metric("Start", "tmux-version-µs", millis), metric("Start", "holdfast-version-µs", millis), metric("Start", "holdfast-ls-µs", millis),
			metric("Start", "supervisor-version-µs", millis), metric("Start", "proxy-version-µs", millis), metric("Start", "proxy-ls-µs", millis),
		}},
	},
	{
		name: "agent", args: bench("Agent"), rows: dayTasks(),
		head: []string{"tokens for the task", "`holdfast mcp`", "tmux, each second", "tmux, each 5 s", "tmux, cleared"},
	},
}
