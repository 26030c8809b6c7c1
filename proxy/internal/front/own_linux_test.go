package front

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// pseudoTerminal returns the two ends of a terminal without echo.
func pseudoTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = master.Close() })
	testkit.Must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY)
	if errno != 0 {
		t.Fatal(errno)
	}
	terminal = os.NewFile(fd, "terminal")
	t.Cleanup(func() { _ = terminal.Close() })
	return master, terminal
}

// A Terminal must read and write the terminal, and must leave its description blocking, because other processes share it.
func TestOwn(t *testing.T) {
	master, terminal := pseudoTerminal(t)
	t.Setenv("TERM", "dumb") // no title is saved
	front := Open(terminal, terminal)
	testkit.Must(t, front.Raw())
	defer front.Restore()
	read := make(chan string)
	go func() {
		buf := make([]byte, 100)
		n, err := front.in.read(buf, nil) // begins before there is input
		if err != nil {
			t.Error(err)
		}
		read <- string(buf[:n])
	}()
	if _, err := master.WriteString("keys"); err != nil {
		t.Fatal(err)
	}
	if got := <-read; got != "keys" {
		t.Errorf("read %q, want keys", got)
	}
	if _, err := front.Write([]byte("output")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if n, err := master.Read(buf); err != nil || string(buf[:n]) != "output" {
		t.Errorf("the terminal has received %q, %v, want output", buf[:n], err)
	}
	if front.in.from == front.in.file || front.to == front.out {
		t.Error("the terminal was not opened again")
	}
	flags, err := unix.FcntlInt(terminal.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags of the terminal: %#x, %v; want no O_NONBLOCK", flags, err)
	}
}

// The notice of a link that stalls must fit in one row, because a longer one would scroll the screen.
func TestOverlayOfNarrowTerminal(t *testing.T) {
	master, terminal := pseudoTerminal(t)
	testkit.Must(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 20, Row: 5}))
	t.Setenv("TERM", "xterm")
	Open(terminal, terminal).overlay("[no answer for 3 s; input is kept]")
	buf := make([]byte, 200)
	n, err := master.Read(buf)
	if want := "\x1b7\x1b[999;1H\x1b[0;7m\x1b[2K[no answer for 3 s; \x1b[0m\x1b8"; err != nil || string(buf[:n]) != want {
		t.Errorf("the terminal has received %q, %v, want %q", buf[:n], err, want)
	}
}

// A file that is no terminal must be used as it is.
func TestOwnOfOthers(t *testing.T) {
	r, w, err := os.Pipe()
	testkit.Must(t, err)
	defer r.Close()
	defer w.Close()
	if own(r) != r {
		t.Error("a pipe was opened again")
	}
}

// A snapshot is shown on the normal screen, although a viewer that was killed has left the alternate one.
func TestClearLeavesAlternate(t *testing.T) {
	master, terminal := pseudoTerminal(t)
	t.Setenv("TERM", "xterm")
	front := Open(terminal, terminal)
	front.clear(true)
	buf := make([]byte, 100)
	n, err := master.Read(buf)
	if got := string(buf[:n]); err != nil || !strings.HasPrefix(got, "\x1b[?1047l") || !strings.HasSuffix(got, "\x1b[H\x1b[J") {
		t.Errorf("clear writes %q, %v", got, err)
	}
}
