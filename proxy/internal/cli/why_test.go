package cli

import (
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
)

func TestPrintWhy(t *testing.T) {
	began := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	ended := began.Add(3*time.Hour + 2*time.Minute + 400*time.Millisecond)
	const head = "build (make -j8)\n"
	for _, tt := range []struct {
		name string
		exit *protocol.ExitRecord
		want string
	}{
		{"running", nil, head + "running since 2026-09-01T12:00:00Z, for 1.5s, as pid 7\n"},
		{"frozen", nil, head + "running since 2026-09-01T12:00:00Z, for 1.5s, as pid 7\nfrozen: proxy thaw build lets its programs continue\n"},
		{"of an old supervisor", &protocol.ExitRecord{ExitCode: 3}, head +
			"ended 2026-09-01T15:02:00Z with code 3, after 3h2m0s\nno client asked for it: the program ended by itself\nwas started in /home/x\n"},
		{"all there is", &protocol.ExitRecord{
			ExitCode: 137, Signal: "SIGKILL", Outcome: protocol.OutcomeHard, Reason: protocol.ReasonUserRequested, EndedBy: "proxy /dev/pts/3", EndedByUser: "ann",
			Survivors: []int{8, 9}, Cwd: "/home/x/proj\x1b[31m", Usage: protocol.Usage{UserMS: 12345, SystemMS: 400, MaxRSSBytes: 120 << 20}, LastLines: []string{"a\x1b", "b"},
		}, head + "ended 2026-09-01T15:02:00Z by SIGKILL, after 3h2m0s\n" +
			"asked for by proxy /dev/pts/3 for the user ann (user_requested); it did not end when asked, and was killed\n" +
			"could not be killed: pid 8 9\n" +
			"took 12.345s of processor time, 400ms of the kernel's; at most 120.0 MiB of memory\n" +
			"was in /home/x/proj?[31m\nlast lines:\n  a?\n  b\n"},
		{"a signal", &protocol.ExitRecord{ExitCode: 143, Signal: "SIGTERM", EndedBy: "app"}, head +
			"ended 2026-09-01T15:02:00Z by SIGTERM, after 3h2m0s\nthe signal was sent by app\nwas started in /home/x\n"},
		{"a crash", &protocol.ExitRecord{ExitCode: 139, Signal: "SIGSEGV", CoreDumped: true, Usage: protocol.Usage{MaxRSSBytes: 3 << 29}}, head +
			"ended 2026-09-01T15:02:00Z by SIGSEGV, and dumped core, after 3h2m0s\nno client asked for it: the signal came from the program itself or from outside\n" +
			"took 0s of processor time, 0s of the kernel's; at most 1.5 GiB of memory\nwas started in /home/x\n"},
		{"memory", &protocol.ExitRecord{ExitCode: 137, Signal: "SIGKILL", OOM: protocol.OOMKernelLog}, head +
			"ended 2026-09-01T15:02:00Z by SIGKILL, after 3h2m0s\nno client asked for it: the signal came from the program itself or from outside\n" +
			"out of memory: the kernel's log says that it was killed for that\nwas started in /home/x\n"},
		{"memory of a program of its own", &protocol.ExitRecord{ExitCode: 137, OOM: protocol.OOMCgroup}, head +
			"ended 2026-09-01T15:02:00Z with code 137, after 3h2m0s\nno client asked for it: the program ended by itself\n" +
			"out of memory: its cgroup says that one was killed for that at the time\nwas started in /home/x\n"},
		{"unknown", &protocol.ExitRecord{ExitCode: -1, Reason: protocol.ReasonWaitError}, head +
			"ended 2026-09-01T15:02:00Z with an unknown code, after 3h2m0s\nno client asked for it: the program ended by itself\nwas started in /home/x\n"},
		{"lost", nil, head + "lost with the machine, after 1h0m0s or more\nstored last 2026-09-01T13:00:00Z, up to offset 42 of its output\n" +
			"was in /home/x/src\nproxy revive build starts it again below its last screen\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &protocol.SessionInfo{ID: "build", PID: 7, State: protocol.StateRunning, Argv: []string{"make", "-j8"}, Cwd: "/home/x", CreatedAt: began}
			s.Frozen = tt.name == "frozen"
			if tt.name == "lost" {
				s.State, s.PID, s.Lost = protocol.StateLost, 0, &protocol.Lost{Offset: 42, SeenAt: began.Add(time.Hour), Cwd: "/home/x/src"}
			}
			if tt.exit != nil {
				tt.exit.StartedAt, tt.exit.ExitedAt = began, ended
				if tt.exit.Outcome == "" {
					tt.exit.Outcome = protocol.OutcomeNatural
				}
				s.Exit = tt.exit
			}
			var b strings.Builder
			if err := printWhy(&b, s, began.Add(1500*time.Millisecond)); err != nil || b.String() != tt.want {
				t.Errorf("got %v,\n%swant\n%s", err, b.String(), tt.want)
			}
		})
	}
}
