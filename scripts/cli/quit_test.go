//go:build linux

package cli

import (
	"crypto/md5"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// Until a command has made the terminal raw, the terminal makes SIGQUIT of the first detach key. It must end the command as other
// signals do, and not by the default action, which prints all goroutines.
func TestDetachKeysBeforeAttach(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"attach", "s"}, {"attach"}, {"new"}, {"reopen", "s"}, {"revive", "s"}, {"play", "s"}} {
		t.Run(args[0], func(t *testing.T) {
			w := newWorld(t)
			w.mkdir("")
			l, err := net.Listen("unix", w.Path("proxy.sock")) // a proxy that does not answer
			testkit.Must(t, err)
			defer func() { _ = l.Close() }()
			p := w.open(args...)
			nc, err := l.Accept()
			testkit.Must(t, err)
			defer func() { _ = nc.Close() }()
			p.typ("\x1cd")
			p.ends(131, "")
		})
	}
}

// The detach keys must end the view of a program that does not read, however much of a paste waits for it, and attach must
// tell how much of it the session has not accepted. If the program reads, it must receive all of the paste.
func TestDetachKeysAfterPaste(t *testing.T) {
	t.Parallel()
	const queue, window = 8 << 20, 1 << 20 // what the session accepts, and what the client keeps without an acknowledgement
	paste := strings.Repeat("0123456789abcde\n", (queue+window+1<<20)/16)
	w := newWorld(t)
	reads := w.Path("reads")
	w.mkdir("")
	testkit.Must(t, unix.Mkfifo(reads, 0o600))
	w.shell("s", fmt.Sprintf("stty raw -echo; echo ready; cat %s; head -c %d | md5sum; exec sleep 1000", reads, len(paste)))
	p := w.open("attach", "s")
	p.expect("ready")
	p.typ(paste)
	testkit.Must(t, os.WriteFile(reads, nil, 0))
	p.expect(fmt.Sprintf("%x", md5.Sum([]byte(paste))))
	p.typ(paste)
	p.typ("\x1cd")
	p.ends(75, "[detached from s]")
	said := regexp.MustCompile(`proxy: (\d+) bytes of input may not have reached session s`).FindStringSubmatch(p.text())
	if said == nil {
		t.Fatalf("attach does not tell how much of the paste is lost: %.200q", p.text())
	}
	lost, _ := strconv.Atoi(said[1])
	if accepted := len(paste) - lost; accepted < queue || accepted > queue+64<<10 {
		t.Errorf("attach reports %d bytes as lost, so the session has accepted %d, but its queue has %d", lost, accepted, queue)
	}
}
