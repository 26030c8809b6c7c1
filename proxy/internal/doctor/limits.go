package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Shares of a limit, in percent, from which a finding is a warning or an error.
const (
	warnFull  = 80
	errorFull = 95
)

// terminals finds a machine that has no PTYs, or has nearly reached their limit.
func (l *inspection) terminals() []Finding {
	var found []Finding
	if err := openPtmx(l.Ptmx); err != nil {
		found = append(found, Finding{"ptmx", Error, err.Error(),
			"check that devpts is mounted, " + l.Ptmx + " has mode 0666, and files and PTYs are left"})
	}
	if l.Proc == "" {
		return orOK(found, "ptmx", l.Ptmx+" makes terminals")
	}
	nr, err := l.number("nr")
	if err != nil {
		return append(found, Finding{"ptmx", Note, fmt.Sprintf("unknown how many terminals there are: %v", err), ""})
	}
	limit, err := l.number("max")
	if err != nil {
		return append(found, Finding{"ptmx", Note, fmt.Sprintf("unknown how many terminals there may be: %v", err), ""})
	}
	used := fmt.Sprintf("%d terminals of %d", nr, limit)
	if severity := fullness(nr, limit); severity != OK {
		found = append(found, Finding{"ptmx", severity, used, fmt.Sprintf("end sessions that are not needed, or raise the limit: sysctl kernel.pty.max=%d", max(2*limit, 4096))})
	}
	return orOK(found, "ptmx", used)
}

func fullness(n, limit uint64) Severity {
	switch {
	case n >= limit || 100*n >= errorFull*limit:
		return Error
	case 100*n >= warnFull*limit:
		return Warning
	}
	return OK
}

func (l *inspection) number(name string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(l.Proc, "sys/kernel/pty", name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
}

// fewFiles is a limit of open files with which a supervisor has hardly any room for sessions: it reserves 64 for itself.
const fewFiles = 80

// files finds processes that have nearly reached their limit of open files, and a limit with which no supervisor can work.
func (l *inspection) files() []Finding {
	var found []Finding
	var okText []string
	judge := func(name string, open, limit uint64, err error) {
		switch {
		case err != nil:
			found = append(found, Finding{"files", Note, fmt.Sprintf("unknown of %s: %v", name, err), ""})
		case fullness(open, limit) != OK: // a warning, because the process continues with its open files
			found = append(found, Finding{"files", Warning, fmt.Sprintf("%s has %d files open of %d", name, open, limit),
				"end sessions that are not needed, or start it with a higher limit (ulimit -n, LimitNOFILE=)"})
		default:
			okText = append(okText, fmt.Sprintf("%s %d of %d", name, open, limit))
		}
	}
	open, limit, err := l.Files()
	judge("this process", open, limit, err)
	if err == nil && limit < fewFiles {
		found = append(found, Finding{"files", Warning,
			fmt.Sprintf("a supervisor that is started with the limit of this process may open %d files: too few to start, or to hold a session", limit),
			"raise the limit first (ulimit -n, LimitNOFILE=)"})
	}
	for _, p := range l.procs {
		if p.program != "" {
			open, limit, err := l.filesOf(p.pid)
			judge(fmt.Sprintf("%s %d", p.program, p.pid), open, limit, err)
		}
	}
	return orOK(found, "files", strings.Join(okText, ", "))
}

// filesOf returns the number of open files of a process, and its limit.
func (l *inspection) filesOf(pid int) (open, limit uint64, err error) {
	entries, err := os.ReadDir(l.of(pid, "fd"))
	if err != nil {
		return 0, 0, err
	}
	b, err := os.ReadFile(l.of(pid, "limits"))
	if err != nil {
		return 0, 0, err
	}
	_, remainder, _ := strings.Cut(string(b), "Max open files")
	fields := strings.Fields(remainder)
	if len(fields) == 0 {
		return 0, 0, fmt.Errorf("%s does not say", l.of(pid, "limits"))
	}
	if fields[0] == "unlimited" {
		return uint64(len(entries)), 1 << 32, nil
	}
	limit, err = strconv.ParseUint(fields[0], 10, 32)
	return uint64(len(entries)), limit, err
}
