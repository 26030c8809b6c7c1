package journal

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

const (
	kills     = 100
	killed    = 4       // number of writers
	killedMax = 1 << 20 // the most bytes that wait
	aPaste    = 5 << 20
)

// Descriptors of a process in the role of a typist.
const (
	fdMaster  = 3 + iota
	fdRoom    // the room, and behind it a page with the offset that was acknowledged to each writer
	fdPipe    // the pipe of the journal
	fdControl // on which the process sends the queue's file, and a message when it begins to write
	fdQueue   // the queue's file, if there is one
)

// pattern returns the byte of a writer at an offset: the writer in two bits, and six bits that show whether a byte is
// missing or doubled.
func pattern(writer int, offset uint64) byte {
	h := (offset + 1) * 0x9e3779b97f4a7c15
	h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
	return byte(writer)<<6 | byte(h>>32)&63
}

// A rig has everything that outlives the typists: a terminal with a process that reads it, the room, and duplicates
// of the journal's files.
type rig struct {
	tb            testing.TB
	rnd           *rand.Rand
	master, slave int
	room          int // descriptor of the room's file
	mem           []byte
	files         Files
	reader        int // pid of the reader
	out           *os.File
	seen          chan error // the result of verify
	next          [killed]uint64
	came          atomic.Uint64 // bytes that have arrived
	progress      chan struct{} // receives a value when more bytes have arrived
}

func newRig(tb testing.TB, seed uint64) *rig {
	r := &rig{tb: tb, rnd: rand.New(rand.NewPCG(seed, 0)), seen: make(chan error, 1), progress: make(chan struct{}, 1)}
	r.master, r.slave = openTerminal(tb)
	var err error
	r.room, err = unix.MemfdCreate("room", unix.MFD_CLOEXEC)
	r.must(errors.Join(err, unix.Ftruncate(r.room, RoomBytes+4096)))
	r.mem, err = unix.Mmap(r.room, 0, RoomBytes+4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	r.must(err)
	j, err := New(r.mem[:RoomBytes], Config{Max: killedMax})
	r.must(err)
	r.files = j.Files()

	var out [2]int
	r.must(unix.Pipe2(out[:], unix.O_CLOEXEC))
	r.out = os.NewFile(uintptr(out[0]), "out")
	r.reader = r.start("reader", "", uintptr(r.slave), uintptr(out[1]), 2)
	r.must(errors.Join(unix.Close(out[1]), unix.Close(r.slave)))
	go func() { r.seen <- r.verify() }()
	tb.Cleanup(r.close)
	return r
}

func (r *rig) close() {
	_ = unix.Kill(r.reader, unix.SIGKILL)
	_, _ = unix.Wait4(r.reader, nil, 0, nil)
	r.must(errors.Join(r.out.Close(), closeFile(r.room), closeFile(r.files.Pipe), closeFile(r.files.Queue), unix.Munmap(r.mem)))
}

func (r *rig) must(err error) {
	r.tb.Helper()
	testkit.Must(r.tb, err)
}

func openTerminal(tb testing.TB) (master, slave int) {
	tb.Helper()
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	testkit.Must(tb, err)
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0))
	testkit.Must(tb, err)
	slave, err = unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	testkit.Must(tb, err)
	raw := &unix.Termios{Cflag: unix.CS8 | unix.CREAD}
	raw.Cc[unix.VMIN] = 1
	testkit.Must(tb, unix.IoctlSetTermios(slave, unix.TCSETS, raw))
	return master, slave
}

// start runs this binary in a role, with files as its descriptors.
func (r *rig) start(role, what string, files ...uintptr) (pid int) {
	r.tb.Helper()
	pid, err := syscall.ForkExec(os.Args[0], []string{os.Args[0], strconv.FormatUint(r.rnd.Uint64(), 10), what}, &syscall.ProcAttr{
		Env: append(os.Environ(), roleVariable+"="+role), Files: files,
	})
	r.must(err)
	return pid
}

// verify checks that the bytes of each writer arrive once and in order, until the reader ends.
func (r *rig) verify() error {
	b := make([]byte, 64<<10)
	for {
		n, err := r.out.Read(b)
		for i, c := range b[:n] {
			w := c >> 6
			if want := pattern(int(w), r.next[w]); c != want {
				return fmt.Errorf("writer %d, byte %d: got %#x, want %#x; then %#x", w, r.next[w], c, want, b[i:min(i+16, n)])
			}
			r.next[w]++
		}
		r.came.Add(uint64(n))
		select {
		case r.progress <- struct{}{}:
		default:
		}
		if err != nil {
			return nil // the reader has ended
		}
	}
}

// live runs a typist until it is killed or, as the last one, has written everything.
func (r *rig) live(role string) (fate syscall.WaitStatus) {
	r.tb.Helper()
	control, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	r.must(err)
	defer unix.Close(control[0])
	files := []uintptr{0, 1, 2, uintptr(r.master), uintptr(r.room), uintptr(r.files.Pipe), uintptr(control[1])}
	queue := ""
	if r.files.Queue >= 0 {
		queue = "queue"
		files = append(files, uintptr(r.files.Queue))
	}
	pid := r.start(role, queue, files...)
	r.must(unix.Close(control[1]))
	r.listen(control[0]) // waits until the typist writes
	if role == "typist" {
		// Usually soon, and sometimes late.
		time.Sleep(time.Duration(r.rnd.Int64N(int64([]time.Duration{1, 5, 40}[r.rnd.IntN(3)] * time.Millisecond))))
		r.must(unix.Kill(pid, unix.SIGKILL))
	}
	for r.listen(control[0]) { // until the typist has ended
	}
	_, err = syscall.Wait4(pid, &fate, 0, nil)
	r.must(err)
	return fate
}

// listen receives one message, which may have the queue's file. It returns false if the typist has ended.
func (r *rig) listen(control int) bool {
	r.tb.Helper()
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, k, _, _, err := unix.Recvmsg(control, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	r.must(err)
	if k > 0 {
		messages, err := unix.ParseSocketControlMessage(oob[:k])
		r.must(err)
		fds, err := unix.ParseUnixRights(&messages[0])
		r.must(err)
		r.files.Queue = fds[0]
	}
	return n > 0
}

// A process that writes input is killed at a random moment, many times in a row, and another one adopts its journal.
// The terminal's reader receives every byte of every writer once and in order, and acknowledged input stays accepted.
func TestKilled(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := newRig(t, seed)
	lives := kills
	if n, err := strconv.Atoi(os.Getenv("JOURNAL_TEST_KILLS")); err == nil {
		lives = n
	}
	counts := map[operation]int{}
	for life := range lives {
		stopped := r.rnd.IntN(5) == 0
		if stopped {
			r.must(unix.Kill(r.reader, unix.SIGSTOP))
		}
		if fate := r.live("typist"); fate.Signal() != unix.SIGKILL {
			t.Fatalf("seed %d: typist %d ended by itself: %#x", seed, life, fate)
		}
		counts[asDoing(r.mem)]++
		if stopped {
			r.must(unix.Kill(r.reader, unix.SIGCONT))
		}
		select {
		case err := <-r.seen:
			t.Fatalf("seed %d: typist %d: %v", seed, life, err)
		default:
		}
	}
	if fate := r.live("last"); !fate.Exited() || fate.ExitStatus() != 0 {
		t.Fatalf("seed %d: the last typist ended by %#x", seed, fate)
	}
	r.finish(seed)
	t.Logf("killed while resting, filling, pouring, queueing: %d, %d, %d, %d; %d bytes", counts[idle], counts[filling], counts[pouring],
		counts[queueing], r.next[0]+r.next[1]+r.next[2]+r.next[3])
}

func asDoing(mem []byte) operation {
	return operation(room(mem).load(wordOperation) & (1<<operationBits - 1))
}

// finish writes a last byte, behind which no bytes may remain. When it has arrived, it hangs up and compares the
// offsets.
func (r *rig) finish(seed uint64) {
	j, err := Adopt(r.mem[:RoomBytes], r.files, Config{Max: killedMax})
	r.must(err)
	if j.Pending() != 0 {
		r.tb.Errorf("seed %d: %d bytes are pending", seed, j.Pending())
	}
	at, _, err := j.Writer("0")
	r.must(err)
	_, _, err = j.Accept("0", at, []byte{pattern(0, at)})
	r.must(err)
	for done := false; !done; {
		r.must(awaitWritable(r.master))
		done, err = j.Flush(kernel(r.master))
		r.must(err)
	}
	var want [killed]uint64
	var total uint64
	for w := range want {
		want[w], _, err = j.Writer(strconv.Itoa(w))
		r.must(err)
		total += want[w]
	}
	for r.came.Load() < total && err == nil {
		select {
		case <-r.progress:
		case err = <-r.seen:
			err = cmp.Or(err, errors.New("the reader has ended"))
		case <-time.After(patience):
			err = errors.New("the reader waits")
		}
	}
	r.must(unix.Close(r.master))
	if err == nil {
		err = <-r.seen
	}
	if err != nil || r.next != want {
		r.tb.Fatalf("seed %d: %v; %d bytes arrived, %d were accepted", seed, err, r.next, want)
	}
}

// An idle session takes one page of its room, and its pipe is small and empty.
func TestMemory(t *testing.T) {
	fd, err := unix.MemfdCreate("room", unix.MFD_CLOEXEC)
	testkit.Must(t, err)
	defer unix.Close(fd)
	testkit.Must(t, unix.Ftruncate(fd, RoomBytes))
	mem, err := unix.Mmap(fd, 0, RoomBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	testkit.Must(t, err)
	defer unix.Munmap(mem)
	j, err := New(mem, Config{})
	testkit.Must(t, err)
	defer j.Close()
	if _, _, err := j.Writer("w"); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Blocks*512 > int64(os.Getpagesize()) {
		t.Errorf("%v, %d bytes of the room are in use", err, st.Blocks*512)
	}
	if n, err := unix.FcntlInt(uintptr(j.Files().Pipe), unix.F_GETPIPE_SZ, 0); err != nil || n > max(pipeBytes, os.Getpagesize()) {
		t.Errorf("the pipe may hold %d bytes, %v", n, err)
	}
}
