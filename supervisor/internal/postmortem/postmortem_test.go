package postmortem

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCounter(t *testing.T) {
	for _, tt := range []struct{ name, cgroup, want string }{
		{"version 2", "0::/user.slice/user-1000.slice/session-2.scope\n", "user.slice/user-1000.slice/session-2.scope/memory.events.local"},
		{"the root of the hierarchy", "0::/\n", "memory.events.local"},
		{"version 1", "5:devices:/d\n4:memory:/a b:c\n0::/\n", "memory/a b:c/memory.oom_control"},
		{"controllers that share a hierarchy", "3:cpu,memory:/x\n", "memory/x/memory.oom_control"},
		{"none has it", "3:cpu,memory2:/x\n1:name=systemd:/y\n", ""},
		{"nothing", "", ""},
		{"cut", "0:", ""},
	} {
		if got := counterFile([]byte(tt.cgroup)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestKills(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		want       uint64
		ok         bool
	}{
		{"version 2", "low 0\nhigh 0\nmax 12\noom 4\noom_kill 3\noom_group_kill 0\n", 3, true},
		{"version 1", "oom_kill_disable 0\nunder_oom 0\noom_kill 18446744073709551615\n", 1<<64 - 1, true},
		{"before Linux 4.13", "oom_kill_disable 0\nunder_oom 0\n", 0, false},
		{"no number", "oom_kill \n", 0, false},
		{"nothing", "", 0, false},
	} {
		if n, ok := killCount([]byte(tt.file)); n != tt.want || ok != tt.ok {
			t.Errorf("%s: got %d, %v, want %d, %v", tt.name, n, ok, tt.want, tt.ok)
		}
	}
}

func TestKilled(t *testing.T) {
	const boot = "<5>[    0.000000] Linux version 6.18\n<4>[  100.5] big invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=800\n"
	const rest = " (big) total-vm:106496kB, anon-rss:65024kB, file-rss:1536kB, shmem-rss:0kB, UID:1000 pgtables:176kB oom_score_adj:800\n"
	for _, tt := range []struct {
		name, log string
		since     time.Duration
		want      bool
	}{
		{"of a cgroup", boot + "<3>[  100.600000] Memory cgroup out of memory: Killed process 4242" + rest, 0, true},
		{"of the system", boot + "<3>[  100.600000] Out of memory: Killed process 4242" + rest, 100 * time.Second, true},
		{"with oom_kill_allocating_task", "<3>[1.5] Out of memory (oom_kill_allocating_task): Killed process 4242" + rest, 0, true},
		{"of an older kernel", "<3>[  100.600000] Killed process 4242" + rest, 0, true},
		{"with the printing task", "<3>[  100.600000][  T911] Out of memory: Killed process 4242" + rest, 0, true},
		{"without times", "<3>Out of memory: Killed process 4242" + rest, time.Hour, true},
		{"an incomplete line", "<3>[  100.600000] Out of memory: Killed process 4242 (b", 0, true},
		{"another process", boot + "<3>[  100.600000] Out of memory: Killed process 42424" + rest, 0, false},
		{"another in its group", "<3>[  100.600000] Out of memory: Killed process 424" + rest, 0, false},
		{"an earlier one of that pid", "<3>[  100.600000] Out of memory: Killed process 4242" + rest, 101 * time.Second, false},
		{"and a later one", "<3>[1.0] Out of memory: Killed process 4242" + rest + "<3>[200.0] Out of memory: Killed process 4242" + rest, 101 * time.Second, true},
		{"a name within a line", "<6>[  100.6] a: Killed process 4242 (x)[7]: segfault at 0\n", 0, false},
		{"nothing", "", 0, false},
	} {
		if got := isOOMKilled([]byte(tt.log), 4242, tt.since); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestOOMKilled(t *testing.T) {
	const line = "<6>[  100.6] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/h/session-1,task_memcg=/h/session-1,task=hog,pid=42,uid=0\n"
	const below = "<6>[  100.7][  T9] oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/h/session-1/inner,task=a,pid=7,b,pid=43,uid=0\n"
	for _, tt := range []struct {
		name, log, cgroup string
		want              []string
	}{
		{"one", line, "session-1", []string{"hog (pid 42)"}},
		{"below, with an odd name", line + below, "session-1", []string{"hog (pid 42)", "a,pid=7,b (pid 43)"}},
		{"another", line + below, "session-12", nil},
		{"of a name", "<6>[1.0] x: oom-kill:,task_memcg=/session-1,task=hog,pid=42,uid=0\n", "session-1", nil},
		{"cut", line[:len(line)-20], "session-1", nil},
		{"more than the limit", strings.Repeat(line, 20), "session-1", slices.Repeat([]string{"hog (pid 42)"}, 8)},
		{"nothing", "", "session-1", nil},
	} {
		if got := oomKilled([]byte(tt.log), tt.cgroup); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
