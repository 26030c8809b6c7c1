package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// starts is how often each program is started.
const starts = 50

// BenchmarkStart starts the users' command, the other programs and tmux in turns, and reports the median time
// of each until it has ended.
func BenchmarkStart(b *testing.B) {
	w := newWorld(b)
	bin := testkit.Build(b, "holdfast/proxy/holdfast", "holdfast/proxy", "holdfast/supervisor")
	w.Must("proxy", "start")
	argvs := [][]string{{bin + "/holdfast", "--version"}, {bin + "/holdfast", "ls"}, {bin + "/proxy", "--version"}, {bin + "/supervisor", "--version"}}
	if tmux, err := exec.LookPath("tmux"); err == nil {
		argvs = append(argvs, []string{tmux, "-V"})
	}
	for b.Loop() {
		took := make([][]time.Duration, len(argvs))
		for range starts {
			for i, argv := range argvs {
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.Env = append(os.Environ(), w.Env...)
				begun := time.Now()
				if err := cmd.Run(); err != nil {
					b.Fatalf("%q: %v", argv, err)
				}
				took[i] = append(took[i], time.Since(begun))
			}
		}
		for i, argv := range argvs {
			slices.Sort(took[i])
			fmt.Printf("%v %q\n", took[i][starts/2].Round(10*time.Microsecond), argv)
		}
	}
}
