package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// How full is too full, in percent.
const (
	warnFull  = 80
	errorFull = 95
)

// terminals finds a machine that is about to run out of PTYs, or has none.
func (l *look) terminals() []Finding {
	var found []Finding
	if err := openPtmx(l.Ptmx); err != nil {
		found = append(found, Finding{"ptmx", Error, err.Error(),
			"see that devpts is mounted, " + l.Ptmx + " has mode 0666, and files and PTYs are left"})
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
		found = append(found, Finding{"ptmx", severity, used, fmt.Sprintf("end what needs none, or raise the limit: sysctl kernel.pty.max=%d", max(2*limit, 4096))})
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

func (l *look) number(name string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(l.Proc, "sys/kernel/pty", name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
}

// files finds processes that are about to run out of descriptors.
func (l *look) files() []Finding {
	var found []Finding
	var fine []string
	judge := func(who string, open, limit uint64, err error) {
		switch {
		case err != nil:
			found = append(found, Finding{"files", Note, fmt.Sprintf("unknown of %s: %v", who, err), ""})
		case fullness(open, limit) != OK: // it goes on with what it has, so it is no error
			found = append(found, Finding{"files", Warning, fmt.Sprintf("%s has %d files open of %d", who, open, limit),
				"end what needs none, or start it with a higher limit (ulimit -n, LimitNOFILE=)"})
		default:
			fine = append(fine, fmt.Sprintf("%s %d of %d", who, open, limit))
		}
	}
	open, limit, err := l.Files()
	judge("this process", open, limit, err)
	for _, p := range l.procs {
		if p.program != "" {
			open, limit, err := l.filesOf(p.pid)
			judge(fmt.Sprintf("%s %d", p.program, p.pid), open, limit, err)
		}
	}
	return orOK(found, "files", strings.Join(fine, ", "))
}

// filesOf is how many files a process has open, and how many it may.
func (l *look) filesOf(pid int) (open, limit uint64, err error) {
	entries, err := os.ReadDir(l.of(pid, "fd"))
	if err != nil {
		return 0, 0, err
	}
	b, err := os.ReadFile(l.of(pid, "limits"))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(b), "Max open files")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, 0, fmt.Errorf("%s does not say", l.of(pid, "limits"))
	}
	if fields[0] == "unlimited" {
		return uint64(len(entries)), 1 << 32, nil
	}
	limit, err = strconv.ParseUint(fields[0], 10, 32)
	return uint64(len(entries)), limit, err
}
