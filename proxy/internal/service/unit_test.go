package service

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// specs are proxies whose names and paths need quoting in a unit.
var specs = []struct {
	name string
	spec Spec
}{
	{"plain", Spec{Program: "/home/u/go/bin/proxy", Proxy: "proxy"}},
	{"named", Spec{Program: "/usr/bin/proxy", Proxy: "dev", Env: []string{"XDG_STATE_HOME=/var/u/state", "XDG_CONFIG_HOME=/a b/100%"}}},
	{"odd", Spec{Program: "/opt/a b/100%/$HOME/é;/proxy", Proxy: "dev", Dir: `/d "q" 'p' \x41 %h $HOME ${A} & <b>;`}},
}

func hostOf(goos, home string) Host {
	return Host{OS: goos, UID: 501, Env: func(name string) string { return map[string]string{"HOME": home}[name] }}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for _, goos := range []string{"linux", "darwin"} {
		for _, tt := range specs {
			tt.spec.Log = "/home/u/state & logs/proxy.launchd.log"
			u, err := hostOf(goos, "/home/u").Unit(tt.spec)
			testkit.Must(t, err)
			testkit.Golden(t, filepath.Join("testdata", goos+"-"+tt.name+filepath.Ext(u.Path)), []byte(u.Text))
		}
	}
}

// Each proxy has its own unit.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ goos, proxy, dir, want string }{
		{"linux", "proxy", "", "/h/.config/systemd/user/holdfast.service"},
		{"linux", "dev", "", "/h/.config/systemd/user/holdfast-dev.service"},
		{"linux", "proxy", "/d", "/h/.config/systemd/user/holdfast.4823e769.service"},
		{"linux", "dev", "/d", "/h/.config/systemd/user/holdfast-dev.4823e769.service"},
		{"darwin", "proxy", "", "/h/Library/LaunchAgents/dev.holdfast.proxy.plist"},
		{"darwin", "dev", "/d", "/h/Library/LaunchAgents/dev.holdfast.dev.4823e769.plist"},
	} {
		u, err := hostOf(tt.goos, "/h").Unit(Spec{Program: "/p", Proxy: tt.proxy, Dir: tt.dir})
		if u.Path != tt.want || err != nil {
			t.Errorf("%s, %q, %q: %q, %v, want %q", tt.goos, tt.proxy, tt.dir, u.Path, err, tt.want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		goos string
		spec Spec
		want *protocol.Error
	}{
		{"windows", Spec{Program: "/p", Proxy: "proxy"}, protocol.ErrUnsupportedOS},
		{"linux", Spec{Program: "p", Proxy: "proxy"}, &protocol.Error{Code: protocol.CodeInvalidArgument}},
		{"linux", Spec{Program: "/p", Proxy: "a b"}, &protocol.Error{Code: protocol.CodeInvalidArgument}},
		{"linux", Spec{Program: `/a"b/p`, Proxy: "proxy"}, &protocol.Error{Code: protocol.CodeInvalidArgument}},
		{"linux", Spec{Program: "/p", Proxy: "proxy", Dir: "/a\nExecStartPre=/bin/false"}, &protocol.Error{Code: protocol.CodeInvalidArgument}},
		{"darwin", Spec{Program: "/p", Proxy: "proxy", Dir: "/\xff"}, &protocol.Error{Code: protocol.CodeInvalidArgument}},
	} {
		if _, err := hostOf(tt.goos, "/h").Unit(tt.spec); !errors.Is(err, tt.want) {
			t.Errorf("%s, %+v: %v, want %v", tt.goos, tt.spec, err, tt.want)
		}
	}
}

// systemd accepts each unit without a warning, and finds the program.
func TestSystemdVerifies(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skipf("systemd-analyze is not available: %v", err)
	}
	exe, err := os.Executable()
	testkit.Must(t, err)
	for _, tt := range specs {
		dir := testkit.Dir(t)
		tt.spec.Program = filepath.Join(dir, filepath.Base(filepath.Dir(tt.spec.Program))+" ${HOME} %h", "proxy")
		u, err := hostOf("linux", dir).Unit(tt.spec)
		testkit.Must(t, errors.Join(err, os.MkdirAll(filepath.Dir(tt.spec.Program), 0o700), os.Symlink(exe, tt.spec.Program), write(u.Path, u.Text)))
		cmd := exec.CommandContext(testkit.Soon(t), analyze, "verify", "--user", u.Path)
		cmd.Env = []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "PATH=" + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v, %s\n%s", tt.name, err, out, u.Text)
		}
	}
}

// plist parses the values of the outermost dictionary: strings, arrays of strings, and the element's name for other
// values.
func plist(t *testing.T, text string) map[string][]string {
	t.Helper()
	values := map[string][]string{}
	key, depth := "", 0
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		tok, err := d.Token()
		if err == io.EOF {
			return values
		}
		testkit.Must(t, err)
		switch tok := tok.(type) {
		case xml.EndElement:
			depth--
		case xml.StartElement:
			depth++
			var s string
			switch name := tok.Name.Local; {
			case name == "key" && depth == 3:
				testkit.Must(t, d.DecodeElement(&key, &tok))
				depth--
			case name == "key" || name == "string":
				testkit.Must(t, d.DecodeElement(&s, &tok))
				values[key] = append(values[key], s)
				depth--
			case depth > 2 && name != "array":
				values[key] = append(values[key], name)
			}
		}
	}
}

func TestPlist(t *testing.T) {
	t.Parallel()
	s := specs[2].spec
	s.Env, s.Log = []string{"XDG_STATE_HOME=/s <&>"}, "/l/é&.log"
	u, err := hostOf("darwin", "/h").Unit(s)
	testkit.Must(t, err)
	got := plist(t, u.Text)
	for key, want := range map[string][]string{
		"Label":                  {u.Name},
		"ProgramArguments":       {s.Program, "--handoff", "--foreground", "--proxy", "dev", "--dir", s.Dir},
		"EnvironmentVariables":   {"dict", "XDG_STATE_HOME", "/s <&>"},
		"KeepAlive":              {"dict", "SuccessfulExit", "false"},
		"AbandonProcessGroup":    {"true"},
		"RunAtLoad":              {"true"},
		"ProcessType":            {"Interactive"},
		"LimitLoadToSessionType": {"Aqua"},
		"StandardErrorPath":      {s.Log},
	} {
		if !slices.Equal(got[key], want) {
			t.Errorf("%s: %q, want %q", key, got[key], want)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		t.Errorf("more: %q", got)
	}
}
