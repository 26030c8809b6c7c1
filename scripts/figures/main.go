// Command figures measures the costs of Holdfast, and writes the tables of .github/docs/figures.md.
//
//	go run ./scripts/figures               measures everything, which takes minutes; the machine must do nothing else
//	go run ./scripts/figures start host    measures for these tables alone
//	go run ./scripts/figures --print start prints the table, and does not write it
//
// Invariant: the text between the marks of a table in the page is what the program writes, so that no figure is
// copied by hand. A figure that the output of the command lacks is an error, and leaves the page as it was.
//
// Not here: the measurements (BenchmarkDurable, BenchmarkGate, BenchmarkTerminal, BenchmarkStart and BenchmarkAgent of scripts/e2e, TestLargePast
// of supervisor/internal/replay).
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// page is the path of the page in the tree.
var page = filepath.Join(".github", "docs", "figures.md")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

// run measures for the tables that args name, or for all, and writes the page.
func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("figures", flag.ContinueOnError)
	onlyPrint := f.Bool("print", false, "print the tables, and do not write the page")
	root := f.String("root", ".", "`directory` of the tree")
	if err := f.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(f.Args())
	if err != nil {
		return err
	}
	for _, t := range chosen {
		_, _ = fmt.Fprintf(out, "%s: %s\n", t.name, t.command())
		measured, err := measure(ctx, *root, t)
		if err != nil {
			return err
		}
		text, err := t.text(measured, machine(ctx))
		if err != nil {
			return fmt.Errorf("%w\n%s", err, measured)
		}
		_, _ = io.WriteString(out, text)
		if *onlyPrint {
			continue
		}
		name := filepath.Join(*root, page)
		old, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		changed, err := replace(string(old), t.name, text)
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(changed), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// choose returns the tables with these names, or all tables if there are no names.
func choose(names []string) (chosen []table, err error) {
	for _, name := range names {
		i := slices.IndexFunc(tables, func(t table) bool { return t.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no table %q", name)
		}
		chosen = append(chosen, tables[i])
	}
	if chosen == nil {
		chosen = tables
	}
	return chosen, nil
}

// measure runs the command of a table, and returns its output.
func measure(ctx context.Context, root string, t table) (string, error) {
	cmd := exec.CommandContext(ctx, "go", t.args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), t.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", t.command(), err, &out)
	}
	return out.String(), nil
}

func begin(name string) string { return "<!-- scripts/figures begin: " + name + " -->\n" }

const end = "<!-- scripts/figures end -->"

// inPage returns where the text of a table begins and ends in the page.
func inPage(page, name string) (from, to int, err error) {
	from = strings.Index(page, begin(name))
	if from < 0 {
		return 0, 0, fmt.Errorf("%s has no table %s: it lacks the line %q", page, name, strings.TrimSpace(begin(name)))
	}
	from += len(begin(name))
	length := strings.Index(page[from:], end)
	if length < 0 {
		return 0, 0, fmt.Errorf("the table %s has no end: the page lacks the line %q behind it", name, end)
	}
	return from, from + length, nil
}

// replace returns the page with another text for a table.
func replace(page, name, text string) (string, error) {
	from, to, err := inPage(page, name)
	if err != nil {
		return "", err
	}
	return page[:from] + text + page[to:], nil
}

// machine describes the machine: processors, memory, system, and Go. A part that cannot be found out is left out.
func machine(ctx context.Context) string {
	parts := []string{fmt.Sprintf("%d processors%s", runtime.NumCPU(), prefixed(" ", processor(ctx)))}
	if memory := memoryGiB(); memory > 0 {
		parts = append(parts, fmt.Sprintf("%d GiB of memory", memory))
	}
	out, _ := exec.CommandContext(ctx, "uname", "-sr").Output()
	kernel, _, _ := strings.Cut(string(out), "-") // without the suffix of its builder
	parts = append(parts, cmp.Or(strings.TrimSpace(kernel), runtime.GOOS), runtime.Version())
	return strings.Join(parts, ", ")
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// processor returns the model of the processors in parentheses, or "" if it is unknown.
func processor(ctx context.Context) string {
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return "(" + strings.TrimSpace(value) + ")"
			}
		}
	}
	if out, err := exec.CommandContext(ctx, "sysctl", "-n", "machdep.cpu.brand_string").Output(); err == nil {
		return "(" + strings.TrimSpace(string(out)) + ")"
	}
	return ""
}

// memoryGiB returns the memory of the machine, rounded, or 0 if it is unknown.
func memoryGiB() int {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kib int
	if _, err := fmt.Sscanf(string(data), "MemTotal: %d kB", &kib); err != nil {
		return 0
	}
	return (kib + 1<<19) >> 20
}
