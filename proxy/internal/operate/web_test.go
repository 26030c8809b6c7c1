//go:build linux

package operate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/proxy/internal/serve"
	"holdfast/shared/config"
	"holdfast/shared/testkit"
)

// The browser's command line does not have the ticket: it has the path of a file that only this user can read. The
// file is removed when the browser has signed in.
func TestOpenPage(t *testing.T) {
	dir := testkit.Dir(t)
	t.Setenv("HOLDFAST_DIR", dir)
	t.Setenv("DISPLAY", ":0")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	script := "#!/bin/sh\necho \"$1\" >" + dir + "/argument\nf=${1#file://}\nstat -c %a $f >" + dir + "/mode\ncat $f >" + dir + "/content\nrm $f\n"
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700))
	l := &webLink{URL: serve.PageURL("127.0.0.1:1", "secret"), ticket: "secret"}
	opened, err := openPage(t.Context(), config.Dirs{Runtime: dir}, l)
	if err != nil || !opened {
		t.Fatal(opened, err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if got, want := read("argument"), "file://"+serve.OpenFile(config.Dirs{Runtime: dir}, "secret")+"\n"; got != want || strings.Contains(got, "secret") {
		t.Errorf("the browser was started with %q, want %q", got, want)
	}
	if mode := read("mode"); mode != "600\n" {
		t.Errorf("the file has mode %s", mode)
	}
	if content := read("content"); !strings.Contains(content, `url=`+l.URL+`"`) {
		t.Errorf("the file has %s", content)
	}

	// Without a browser no file remains.
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	if opened, err := openPage(t.Context(), config.Dirs{Runtime: dir}, l); opened || err != nil {
		t.Error(opened, err)
	}
	if left, _ := filepath.Glob(dir + "/open-*"); len(left) > 0 {
		t.Errorf("%q was not removed", left)
	}
}
