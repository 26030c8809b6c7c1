//go:build linux

package e2e

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/protocol/gate"
	"holdfast/shared/testkit"
)

// A rolling is a fleet whose hosts run the programs of one release, with clients whose connections the relay
// counts.
type rolling struct {
	*gates
	clients *relay // between the clients and a gate
	visits  []*visit
	opened  int64 // number of connections of the clients
}

// newRolling starts gates and hosts. The hosts permit upgrades from the directories and URLs in permitted,
// and trust the certificate. A client types and reads on each host.
func newRolling(t *testing.T, gateCount int, of release, permitted, certificate string, names ...string) *rolling {
	t.Helper()
	f := &rolling{gates: newGates(t, gateCount)}
	for i, name := range names {
		h := newWorld(t, bigRing, "HOLDFAST_UPGRADE_FROM="+permitted, "SSL_CERT_FILE="+certificate)
		h.Bin = of.bin
		at := f.all[i%gateCount]
		h.Must("proxy", "join", at.token(), "--name", name, "--label", "team=red")
		f.hosts[name] = h
	}
	for _, name := range names {
		f.place(name)
	}
	f.clients = newRelay(t, f.listen)
	f.gate.Addresses = []string{f.clients.ln.Addr().String()}
	for _, name := range names {
		f.enter(name) // it starts proxy and supervisor, which would be slow while clients type
	}
	for _, name := range names {
		f.visits = append(f.visits, f.visit(name))
	}
	f.opened = f.clients.accepted.Load()
	return f
}

// A rolledOut is the last line of "proxy upgrade --hosts --json".
type rolledOut struct {
	Outcome string `json:"outcome"`
	Error   string `json:"error"`
	Hosts   []struct {
		Host, State, Supervisor, Proxy, Error string
		Clients, Closed                       int
		StallMS                               float64 `json:"stall_ms"`
	} `json:"hosts"`
}

// rollOut upgrades all hosts, and returns the result and the exit code.
func (f *rolling) rollOut(to string, args ...string) (out rolledOut, code int) {
	f.T.Helper()
	cmd := f.Command("proxy", append([]string{"upgrade", "--hosts", "*", "--to", to, "--max-stall", "0", "--json"}, args...)...)
	printed, err := cmd.Output() // the limit of Run is too short for many hosts
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.T.Fatal(err)
	}
	for line := range strings.Lines(string(printed)) {
		var e struct{ Result rolledOut }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			f.T.Fatalf("%v in %s", err, printed)
		}
		out = e.Result
	}
	if out.Outcome == "" {
		f.T.Fatalf("the rollout printed no result: %v, %s", err, printed)
	}
	return out, cmd.ProcessState.ExitCode()
}

// states returns HOST:STATE:SUPERVISOR:PROXY of all hosts.
func (o rolledOut) states() string {
	var words []string
	for _, h := range o.Hosts {
		words = append(words, fmt.Sprintf("%s:%s:%s:%s", h.Host, h.State, h.Supervisor, h.Proxy))
	}
	return strings.Join(words, " ")
}

// unharmed fails the test if a client was closed, or if lines and echoes do not continue. Each connection moves once, to
// the next agent of the host, each time that the agents are replaced.
func (f *rolling) unharmed(after string, moves int64) {
	f.T.Helper()
	for _, v := range f.visits {
		v.continues(f.T.(*testing.T), beginSpan())
	}
	now := f.clients.accepted.Load()
	if most := f.opened * (1 + moves); now > most || moves > 0 && now == f.opened {
		f.T.Errorf("after %s the clients have opened %d connections, and had %d; at most %d are right", after, now, f.opened, most)
	}
	if got := f.states(); strings.Contains(got, ":exited") {
		f.T.Errorf("after %s the sessions are %q", after, got)
	}
	f.opened = now
}

// awaitAgents returns when the agents of the hosts have the releases NAME:RELEASE.
func (f *rolling) awaitAgents(want string) {
	f.T.Helper()
	got := ""
	if !eventually(func() bool {
		var list []gate.HostInfo
		testkit.Must(f.T, json.Unmarshal([]byte(f.Must("proxy", "hosts", "--json")), &list))
		var words []string
		for _, h := range list {
			words = append(words, h.Name+":"+h.Release)
		}
		got = strings.Join(words, " ")
		return got == want
	}) {
		f.T.Errorf("the agents are %q, want %q", got, want)
	}
}

// serviceAgent lets an agent in the foreground, as a service manager starts it, take over from that of a host.
func (f *rolling) serviceAgent(name string) *daemon {
	f.T.Helper()
	h := f.hosts[name]
	before := lookup(h.Holder("join.sock"))
	d := h.Start(h.Command("proxy", "join", "--foreground"))
	h.Gone(before)
	return d
}

// packRelease makes an archive of a release, as scripts/release does but without compression, which would take
// seconds. It returns its path and its SHA-256.
func packRelease(t *testing.T, of release) (path, sum string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "holdfast.tar.gz")
	to, err := os.Create(path)
	testkit.Must(t, err)
	hash := sha256.New()
	zipped, err := gzip.NewWriterLevel(io.MultiWriter(to, hash), gzip.NoCompression)
	files := tar.NewWriter(zipped)
	for _, name := range []string{"proxy", "supervisor"} {
		var program []byte
		if err == nil {
			program, err = os.ReadFile(filepath.Join(of.bin, name))
		}
		if err == nil {
			err = files.WriteHeader(&tar.Header{Name: "holdfast/bin/" + name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))})
		}
		if err == nil {
			_, err = files.Write(program)
		}
	}
	testkit.Must(t, errors.Join(err, files.Close(), zipped.Close(), to.Close()))
	return path, hex.EncodeToString(hash.Sum(nil))
}

// Hosts are upgraded in waves together with their agents, one of which belongs to a service manager, while clients type
// and read. A release that fails on a host must change nothing, or must be taken back on all hosts, agents included. No
// client may be closed before it has its next connection, and no byte may be lost. HOLDFAST_LONG=1 adds more releases.
// demand: S10
func TestRollout(t *testing.T) {
	t.Parallel()
	one, other := releases(t)
	base := testkit.Dir(t)
	archive, sum := packRelease(t, other)
	server := httptest.NewTLSServer(http.FileServer(http.Dir(filepath.Dir(archive))))
	t.Cleanup(server.Close)
	certificate := filepath.Join(base, "server.pem")
	testkit.Must(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	url := server.URL + "/" + filepath.Base(archive)
	f := newRolling(t, 1, one, base+","+other.bin+","+server.URL, certificate, "blue", "red")
	red := f.hosts["red"]
	service := f.serviceAgent("red")
	f.unharmed("the start of the service", 1)
	// bad makes a release whose program proxy is a script.
	bad := func(name, script string) string {
		dir := filepath.Join(base, name)
		testkit.Must(t, os.Mkdir(dir, 0o700))
		for program, text := range map[string]string{"proxy": `[ "$1" = --version ] && exec echo proxy version v9; ` + script, "supervisor": "exit 1"} {
			testkit.WriteProgram(t, filepath.Join(dir, program), []byte("#!/bin/sh\n"+text+"\n"))
		}
		return dir
	}
	const before = "blue:ready:v1.0.0:v1.0.0 red:ready:v1.0.0:v1.0.0"
	for _, tt := range []struct {
		name, to string
		args     []string
		code     int
		outcome  string
		states   string
		says     string
		moves    int64 // number of agents that each client has had afterwards, without the first
		isLong   bool  // the case runs in the long mode only
		isStuck  bool  // the agent of red cannot be replaced
	}{
		{"a directory that is not permitted", one.bin, nil, 77, "not_begun", "blue:refused:: red:refused::", "permits upgrades from", 0, false, false},
		{"a dry run", other.bin, []string{"--dry-run"}, 0, "possible", before, "", 0, true, false},
		{"a release that does not start", bad("broken", "echo it is broken >&2; exit 1"), nil, 70, "returned", "blue:returned:v1.0.0:v1.0.0 red:waiting:v1.0.0:v1.0.0", "it is broken", 0, true, false},
		{"a release that hangs", bad("hangs", "exec sleep 1000"), []string{"--limit", "1s"}, 70, "returned", "blue:returned:v1.0.0:v1.0.0 red:waiting:v1.0.0:v1.0.0", "not ended in time", 0, true, false},
		{
			"a release that fails after it has replaced the supervisor", bad("half", other.bin+"/supervisor --upgrade; echo it is half >&2; exit 1"),
			nil, 70, "returned", "blue:returned:v1.0.0:v1.0.0 red:waiting:v1.0.0:v1.0.0", "it is half", 0, true, false,
		},
		{
			"a good release on hosts of which the second cannot replace its agent", other.bin,
			nil, 70, "returned", "blue:returned:v1.0.0:v1.0.0 red:returned:v1.0.0:v1.0.0", "continues with its program", 2, false, true,
		},
		{"an archive with another sum", url, []string{"--sha256", strings.Repeat("0", 64)}, 70, "not_begun", "blue:failed:v1.0.0:v1.0.0 red:failed:v1.0.0:v1.0.0", "has the SHA-256 " + sum, 0, true, false},
		{"a good release in an archive", url, []string{"--sha256", sum}, 0, "upgraded", "blue:upgraded:v2.0.0:v2.0.0 red:upgraded:v2.0.0:v2.0.0", "", 2, false, false},
		{"the same release again", other.bin, nil, 0, "upgraded", "blue:current:v2.0.0:v2.0.0 red:current:v2.0.0:v2.0.0", "", 0, true, false},
	} {
		if tt.isLong && !isLong {
			continue
		}
		begin := time.Now()
		offer := red.Path("join.handoff.sock")
		if tt.isStuck {
			// The agent would make a missing socket again within 10 s. It cannot replace a directory that is not empty.
			testkit.Must(t, errors.Join(os.Rename(offer, offer+".away"), os.MkdirAll(filepath.Join(offer, "full"), 0o700)))
		}
		out, code := f.rollOut(tt.to, tt.args...)
		if tt.isStuck {
			testkit.Must(t, errors.Join(os.RemoveAll(offer), os.Rename(offer+".away", offer)))
			f.awaitAgents("blue:v1.0.0 red:v1.0.0")
		}
		t.Logf("%s: after %v", tt.name, time.Since(begin))
		if code != tt.code || out.Outcome != tt.outcome || out.states() != tt.states || !strings.Contains(out.Error, tt.says) {
			t.Errorf("%s: %d with %+v\nwant %d, %s, %s and %q", tt.name, code, out, tt.code, tt.outcome, tt.states, tt.says)
		}
		f.unharmed(tt.name, tt.moves)
	}
	f.awaitAgents("blue:v2.0.0 red:v2.0.0")
	var program string
	if !eventually(func() bool {
		program, _ = os.Readlink(fmt.Sprintf("/proc/%d/exe", service.PID)) // of a process that has ended it is ""
		return red.Holder("join.sock") == service.PID && strings.HasPrefix(program, red.Path("fetched"))
	}) || !service.Running() {
		t.Errorf("the process of the service, %d, runs %q, and the agent is %d", service.PID, program, red.Holder("join.sock"))
	}
	red.Bin = one.bin
	if r := red.Run("proxy", "upgrade"); r.Code != 0 || !strings.Contains(r.Out, "agent: v1.0.0 serves") {
		t.Errorf("an upgrade of the host itself: %v", r)
	}
	f.awaitAgents("blue:v2.0.0 red:v1.0.0")
	f.unharmed("an upgrade of the host itself", 2)
	if log, err := os.ReadFile(f.hosts["blue"].Path("join.log")); err != nil || strings.Count(string(log), `"security":true`) < 1 {
		t.Errorf("the log of the agent has no refusal: %s, %v", log, err)
	}
	unread := f.Command("proxy", "upgrade", "--hosts", "red", "--to", one.bin) // which red refuses
	reader, writer, err := os.Pipe()
	testkit.Must(t, err)
	unread.Stdout = writer
	testkit.Must(t, errors.Join(reader.Close(), unread.Start(), writer.Close()))
	if err := unread.Wait(); !unread.ProcessState.Exited() {
		t.Errorf("without a reader of its output, the command ends with %v", err)
	}
	for _, v := range f.visits {
		v.leave()
	}
}

// Many hosts of three gates are upgraded while a client types and reads on each. No connection of a client
// may be closed, and no byte may be lost. The test needs HOLDFAST_LONG=1; HOLDFAST_HOSTS=NUMBER sets its
// size.
// demand: S10
func TestRolloutOfMany(t *testing.T) {
	if !isLong {
		t.Skip("long mode: set HOLDFAST_LONG=1")
	}
	one, other := releases(t)
	var names []string
	for i := range number(t, "HOLDFAST_HOSTS", 20) {
		names = append(names, fmt.Sprintf("host-%02d", i))
	}
	f := newRolling(t, 3, one, other.bin, "", names...)
	f.unharmed("the start", 0)
	out, code := f.rollOut(other.bin, "--parallel", "4", "--limit", "5m")
	if code != 0 || out.Outcome != "upgraded" {
		t.Fatalf("%d with %+v", code, out)
	}
	f.unharmed("the rollout", 1)
	want := []string{}
	for _, name := range names {
		want = append(want, name+":"+other.version)
	}
	f.awaitAgents(strings.Join(want, " "))
	stalls, clients, closed := map[string]float64{}, 0, 0
	for _, h := range out.Hosts {
		if h.State != "upgraded" || h.Proxy != other.version || h.Supervisor != other.version {
			t.Errorf("%+v", h)
		}
		stalls[h.Host], clients, closed = h.StallMS, clients+h.Clients, closed+h.Closed
	}
	for _, v := range f.visits {
		v.leave()
	}
	sorted := slices.Sorted(maps.Values(stalls))
	t.Logf("%d hosts: %d connections moved, %d closed; longest pause of a host %.1f ms (median), %.1f ms at most", len(names), clients, closed, sorted[len(sorted)/2], sorted[len(sorted)-1])
}
