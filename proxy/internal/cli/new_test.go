package cli

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"holdfast/protocol"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
	"holdfast/shared/testkit"
)

// A variable that is named as secret is passed to the session, although others like it are not.
func TestSecretEnv(t *testing.T) {
	t.Setenv("MY_TOKEN", "from the environment")
	t.Setenv("OTHER_TOKEN", "not meant")
	t.Setenv("GIVEN_TOKEN", "old")
	for _, clear := range []bool{false, true} {
		o := &newOptions{secretEnv: []string{"MY_TOKEN", "GIVEN_TOKEN", "UNSET_TOKEN", "*_TOKEN"}, env: []string{"GIVEN_TOKEN=new"}, clearEnv: clear, limits: &protocol.Limits{}}
		r, err := o.request([]string{"sh"})
		testkit.Must(t, err)
		var got []string
		for _, name := range []string{"MY_TOKEN", "OTHER_TOKEN", "GIVEN_TOKEN", "UNSET_TOKEN"} {
			for _, kv := range r.Env {
				if len(kv) > len(name) && kv[:len(name)+1] == name+"=" {
					got = append(got, kv)
				}
			}
		}
		if want := []string{"MY_TOKEN=from the environment", "GIVEN_TOKEN=new"}; !slices.Equal(got, want) || !slices.Equal(r.SecretEnv, o.secretEnv) {
			t.Errorf("the session gets %q, want %q", got, want)
		}
	}
}

// A variable that is not UTF-8 is not passed to the session. One warning names it, without its value.
func TestEnvIsText(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8")
	t.Setenv("EDITOR", "secret\xff")
	t.Setenv("LC_\xff", "x")
	t.Setenv("DISPLAY", ":\xff")
	var b bytes.Buffer
	stderr := plain.Stderr
	plain.Stderr = plain.NewWriter(&b)
	defer func() { plain.Stderr = stderr }()
	o := &newOptions{env: []string{"A=b"}, limits: &protocol.Limits{}}
	r, err := o.request([]string{"sh"})
	testkit.Must(t, err)
	if env := o.attach.textOf(viewerEnv(os.Environ())); !isAllText(env) || !isAllText(r.Env) {
		t.Errorf("not text: %q, %q", env, r.Env)
	}
	if !slices.Contains(r.Env, "LC_ALL=C.UTF-8") || !slices.Contains(r.Env, "A=b") {
		t.Errorf("the session gets %q", r.Env)
	}
	for _, name := range []string{"EDITOR", "DISPLAY", "1 whose name is not text either"} {
		if strings.Count(b.String(), name) != 1 {
			t.Errorf("the warning does not have %s once: %s", name, b.String())
		}
	}
	if strings.Count(b.String(), "\n") != 1 || strings.Contains(b.String(), "secret") {
		t.Errorf("the warning is %q", b.String())
	}
	for _, o := range []*newOptions{{env: []string{"A=\xff"}}, {secretEnv: []string{"EDITOR"}}, {cwd: "/a\xff"}} { // the user has asked for these
		o.limits, o.clearEnv = &protocol.Limits{}, true
		if _, err := o.request([]string{"sh"}); protocol.CodeOf(err) != protocol.CodeInvalidArgument || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: got %v, want invalid_argument", o, err)
		}
	}
}

func isAllText(env []string) bool {
	return !slices.ContainsFunc(env, func(e string) bool { return !utf8.ValidString(e) })
}

// --durable chooses how much of the session is stored.
func TestDurableFlag(t *testing.T) {
	for _, durable := range []protocol.Durable{"", protocol.DurableOff, protocol.DurableFull} {
		o := &newOptions{durable: durable, limits: &protocol.Limits{}}
		if r, err := o.request([]string{"sh"}); err != nil || r.Durable != durable {
			t.Errorf("--durable=%s requests %q, %v", durable, r.Durable, err)
		}
	}
}

// A session cannot start in a directory that was removed, as it cannot in one that does not exist.
func TestRemovedDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	testkit.Must(t, os.RemoveAll(dir))
	for _, cwd := range []string{"", "sub"} {
		_, err := (&newOptions{cwd: cwd}).directory()
		if code := exitcode.Of(err); code != sysexits.OSError || !strings.Contains(exitcode.Text(err), "cd to another one") {
			t.Errorf("--cwd %q: %v, exit code %d, want %d", cwd, err, code, sysexits.OSError)
		}
	}
	a := newApp(nil)
	a.Dir = "./sub" // --dir
	if _, err := a.Dirs(); exitcode.Of(err) != sysexits.OSError || !strings.Contains(exitcode.Text(err), "cd to another one") {
		t.Errorf("--dir %s: %v, exit code %d, want %d", a.Dir, err, exitcode.Of(err), sysexits.OSError)
	}
	if got, err := (&newOptions{cwd: "/"}).directory(); got != "/" || err != nil {
		t.Errorf("--cwd /: %q, %v", got, err)
	}
}

// An empty id is refused, because a script whose variable is not set would start another session with each call.
func TestEmptyID(t *testing.T) {
	for _, args := range [][]string{
		{"new", "--id", "", "-d", "true"}, {"new", "-A", "--id=", "true"}, {"new", "--id", "host/", "-d", "true"}, {"run", "--id", "", "true"},
	} {
		t.Setenv("HOLDFAST_DIR", t.TempDir())
		root := newApp(nil).command(args[0])
		root.SetArgs(args)
		if err := root.Execute(); exitcode.Of(err) != sysexits.Usage || !strings.Contains(exitcode.Text(err), "--id needs an id") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
