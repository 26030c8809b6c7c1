//go:build linux

package keeper_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/shared/machine"
	"holdfast/supervisor/internal/keeper/message"
	"holdfast/supervisor/internal/vault"
)

// An event is a message of the fake supervisor to the test, and a command is a message to it.
type event struct {
	Event   string // up, put, deleting, exit, did
	PID     int
	FDs     int // count of open descriptors
	Records []held
	Exits   []vault.Exit
	Before  vault.Before
	ID      string
	Exit    vault.Exit
	Error   string
	Program string   // the program that the supervisor runs
	Args    []string // arguments with which the program was started
}

type held struct {
	ID    string
	PID   int
	Meta  string
	Files []string // the content of its files
}

type command struct {
	Do    string // put, spawn, delete, exec, quit, exit, raw, env
	ID    string
	N     int
	Start int // number of the start of the supervisor that must obey; 0 means any
	Text  string
	Argv  []string
	Bytes []byte
}

var tell = struct {
	sync.Mutex
	*json.Encoder
}{Encoder: json.NewEncoder(os.Stdout)}

func say(e event) {
	tell.Lock()
	defer tell.Unlock()
	e.PID = os.Getpid()
	tell.Encode(e)
}

// supervisorRole connects to the keeper, reports the records that it received, and obeys commands. It does not
// collect its children, so that the keeper inherits all of them when it dies.
func supervisorRole() int {
	fd, err := strconv.Atoi(os.Getenv(message.EnvSocket))
	if err != nil {
		panic(err)
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	if bad, err := os.ReadFile(os.Getenv("KEEPER_TEST_BAD")); err == nil && string(bad) == program {
		return 3
	}
	if os.Getenv("KEEPER_TEST_STOPPED") != "" {
		unix.Kill(os.Getpid(), unix.SIGSTOP)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	go func() {
		for s := range signals {
			say(event{Event: "signal", ID: s.String()})
		}
	}()
	said := make(chan struct{})
	v, records, exits, err := connect(fd, func(e vault.Exit) { <-said; say(event{Event: "exit", Exit: e}) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervisor:", err)
		return 1
	}
	up := event{Event: "up", Exits: exits, Before: v.Before(), Program: program, Args: os.Args}
	for _, r := range records {
		up.Records = append(up.Records, look(r))
	}
	up.FDs = descriptors(os.Getpid())
	go func() { say(up); close(said) }() // in a goroutine, because an exit may arrive before Ready is answered
	if os.Getenv("KEEPER_TEST_READY") != "no" {
		if err := v.Ready(context.Background(), os.Args...); err != nil {
			panic(err)
		}
	}
	<-said
	say(event{Event: "ready"})
	go func() {
		<-v.Lost()
		say(event{Event: "lost"})
		if keeps {
			panic(handover(up.Before.Starts))
		}
	}()
	for line := make([]byte, 1<<20); ; {
		n, err := syscall.Read(0, line)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			v.Quit(context.Background()) // the test is over, and it has closed the pipe
			return 0
		}
		var c command
		if err := json.Unmarshal(line[:n], &c); err != nil {
			panic(err)
		}
		if c.Do == "exit" {
			return c.N
		}
		if c.Start != 0 && c.Start != up.Before.Starts {
			continue // the command was for an earlier supervisor, which has died
		}
		did := event{Event: "did", ID: c.ID}
		if err := act(v, fd, c); err != nil {
			did.Error = err.Error()
		}
		say(did)
	}
}

// connect connects to the keeper, or resumes the connection that the program before an exec has left.
func connect(fd int, exited func(vault.Exit)) (*vault.Vault, []vault.Entry, []vault.Exit, error) {
	if os.Getenv("KEEPER_TEST_RESUME") == "" {
		return vault.Connect(fd, exited)
	}
	os.Unsetenv("KEEPER_TEST_RESUME")
	v, err := vault.Resume(fd, exited)
	return v, nil, nil, err
}

// The entries that this supervisor has put, if it becomes the keeper when its keeper dies.
var (
	keeps = os.Getenv("KEEPER_TEST_KEEPS") != ""
	kept  []vault.Entry
)

// handover makes this process a keeper, in place of the keeper that has died.
func handover(starts int) error {
	manifest, err := vault.Handover(kept, nil, starts)
	if err != nil {
		return err
	}
	f, err := machine.MemoryFile("manifest")
	if err != nil {
		return err
	}
	defer f.Close() // not before exec, and so not by the garbage collector
	if _, err := f.Write(manifest); err != nil {
		return err
	}
	fds := []int{int(f.Fd())}
	for _, r := range kept {
		fds = append(fds, r.FDs...)
	}
	env := append(os.Environ(), fmt.Sprintf("%s=%d", message.EnvResume, fds[0]))
	return execWith(fds, "/proc/self/exe", []string{os.Args[0], "role=keeper"}, env)
}

func execWith(fds []int, program string, argv, env []string) error {
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return syscall.Exec(program, argv, env)
}

func act(v *vault.Vault, fd int, c command) error {
	ctx := context.Background()
	switch c.Do {
	case "put":
		return put(v, c.ID, c.N, c.Text)
	case "spawn": // a child with its entry, as for a session
		if err := put(v, c.ID, 2, c.Text); err != nil {
			return err
		}
		say(event{Event: "put", ID: c.ID})
		child := exec.Command("sh", "-c", c.Text)
		if err := child.Start(); err != nil {
			return err
		}
		if keeps {
			kept[len(kept)-1].PID = child.Process.Pid
		}
		return v.SetPID(ctx, c.ID, child.Process.Pid)
	case "delete":
		say(event{Event: "deleting", ID: c.ID})
		return v.Delete(ctx, c.ID)
	case "exec":
		program, err := os.Open(c.Text)
		if err != nil {
			return err
		}
		defer program.Close()
		return v.Exec(ctx, c.Argv, program)
	case "ready":
		return v.Ready(ctx)
	case "quit":
		return v.Quit(ctx)
	case "alive":
		return v.Alive(ctx)
	case "raw":
		for range max(c.N, 1) {
			if err := write(fd, c.Bytes); err != nil {
				return err
			}
		}
		return nil
	case "rights": // more descriptors than an entry may have
		if err := write(fd, nil); err != nil {
			return err
		}
		_, err := unix.SendmsgN(fd, c.Bytes, unix.UnixRights(make([]int, c.N)...), nil, 0)
		return err
	case "orphans": // processes that end at once, and whose parent is the keeper
		return exec.Command("sh", "-c", fmt.Sprintf("for i in $(seq %d); do (exec 0<&- 1>&- 2>&-; exit 3 & ) ; done", c.N)).Run()
	case "fill": // entries with as much meta data as the text is long; the error has the number that was accepted
		for i := range c.N {
			err := v.Put(ctx, vault.Entry{ID: fmt.Sprintf("%s%d", c.ID, i), Meta: make([]byte, len(c.Text))})
			if err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
		return nil
	case "reexec": // executes a program in place, as an upgrade of the supervisor does
		if err := v.Leave(ctx); err != nil {
			return err
		}
		fd, err := v.Detach(ctx)
		if err != nil {
			return err
		}
		return execWith([]int{fd}, c.Text, c.Argv, append(os.Environ(), "KEEPER_TEST_RESUME=yes"))
	case "leave":
		return leave(v)
	}
	return fmt.Errorf("%q?", c.Do)
}

// leave does the same as an exec of the supervisor that fails.
func leave(v *vault.Vault) error {
	if _, err := v.Detach(context.Background()); err != nil {
		return err
	}
	v.Attach()
	return nil
}

func put(v *vault.Vault, id string, files int, text string) error {
	r := vault.Entry{ID: id, Meta: []byte(text)}
	for i := range files {
		fd, err := unix.MemfdCreate(id, unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		if !keeps {
			defer unix.Close(fd)
		}
		if _, err := unix.Pwrite(fd, []byte(content(id, i)), 0); err != nil {
			return err
		}
		r.FDs = append(r.FDs, fd)
	}
	if keeps {
		kept = append(kept, r)
	}
	return v.Put(context.Background(), r)
}

func content(id string, i int) string { return fmt.Sprintf("file %d of %s", i, id) }

func look(r vault.Entry) held {
	h := held{ID: r.ID, PID: r.PID, Meta: string(r.Meta[:min(len(r.Meta), 20)])}
	for _, fd := range r.FDs {
		b := make([]byte, 256)
		n, err := unix.Pread(fd, b, 0)
		if err != nil {
			panic(err)
		}
		h.Files = append(h.Files, string(b[:n]))
		syscall.Close(fd)
	}
	return h
}

// write writes to the socket without the vault, which would not send invalid messages.
func write(fd int, b []byte) error {
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR {
			return err
		}
		n, err := unix.Write(fd, b)
		if err != nil && err != unix.EAGAIN {
			return err
		}
		if b = b[max(n, 0):]; len(b) == 0 {
			return nil
		}
	}
}
