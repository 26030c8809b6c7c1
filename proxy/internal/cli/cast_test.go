package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"holdfast/protocol"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/testkit"
)

// However output is cut into events, each event is valid JSON and valid UTF-8, and together they have the whole
// output.
func TestCastText(t *testing.T) {
	const text = "a\x1b[1mé€\U0001F600\r\n\xff\xc3(\xe2\x82"
	const want = "a\x1b[1mé€\U0001F600\r\n\ufffd\ufffd(\ufffd\ufffd"
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			var b bytes.Buffer
			c := &castWriter{w: &b}
			for n, p := range []string{text[:i], text[i:j], text[j:]} {
				testkit.Must(t, c.writeOutput(time.Duration(n)*time.Second, []byte(p)))
			}
			if err := c.flush(time.Second); err != nil { // an earlier time must not go back
				t.Fatal(err)
			}
			got, last := "", -1.0
			for line := range strings.Lines(b.String()) {
				var e []any
				if err := json.Unmarshal([]byte(line), &e); err != nil || !utf8.ValidString(line) {
					t.Fatalf("cut at %d and %d: %v in %q", i, j, err, line)
				}
				if at := e[0].(float64); at < last || e[1] != "o" {
					t.Errorf("cut at %d and %d: %s after %v", i, j, line, last)
				} else {
					last = at
				}
				got += e[2].(string)
			}
			if got != want {
				t.Errorf("cut at %d and %d: %q, want %q", i, j, got, want)
			}
		}
	}
}

func TestOpenCast(t *testing.T) {
	const header = `{"version": 2, "width": 80, "height": 24}` + "\n"
	for _, tt := range []struct {
		name, is        string
		overwrite, goOn bool
		length          time.Duration
		left            string // the file after "x" was appended
		says            string
	}{
		{name: "new", left: "x"},
		{name: "empty", is: "", left: "x"},
		{name: "there", is: header, says: "--overwrite replaces it", left: header},
		{name: "overwrite", is: header, overwrite: true, left: "x"},
		{name: "append", is: header + `[1.5, "o", "a"]` + "\n", goOn: true, length: 1500 * time.Millisecond, left: header + `[1.5, "o", "a"]` + "\nx"},
		{name: "append to half a line", is: header + `[2, "o", "a"]` + "\n" + `[3, "o`, goOn: true, length: 2 * time.Second, left: header + `[2, "o", "a"]` + "\nx"},
		{name: "append without a last line end", is: header + `[2, "o", "a"]`, goOn: true, length: 2 * time.Second, left: header + `[2, "o", "a"]` + "\nx"},
		{name: "append to a header", is: header, goOn: true, length: 1, left: header + "x"},
		{name: "append to something else", is: "notes\n", goOn: true, says: "is not an asciicast", left: "notes\n"},
		{name: "append to version 1", is: `{"version": 1}` + "\n", goOn: true, says: "is not an asciicast", left: `{"version": 1}` + "\n"},
		{name: "append to nonsense", is: header + "a\n", goOn: true, says: "--append cannot continue it: the line at byte 42 is no event", left: header + "a\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f.cast")
			if tt.name != "new" {
				testkit.Must(t, os.WriteFile(path, []byte(tt.is), 0o600))
			}
			w, length, done, err := openCast(path, nil, tt.overwrite, tt.goOn)
			switch {
			case err != nil && (tt.says == "" || !strings.Contains(exitcode.Text(err), tt.says)), err == nil && tt.says != "":
				t.Fatalf("%v, want %q", err, tt.says)
			case err == nil:
				if _, err := w.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				testkit.Must(t, done())
			}
			if b, _ := os.ReadFile(path); length != tt.length || string(b) != tt.left {
				t.Errorf("%v, %q, want %v, %q", length, b, tt.length, tt.left)
			}
		})
	}
}

func TestCastHeader(t *testing.T) {
	s := &protocol.SessionInfo{Argv: []string{"make", "-j8"}, Size: protocol.Size{Cols: 100, Rows: 30}}
	h := newCastHeader(s, time.Unix(1e9, 5))
	if h.Version != 2 || h.Width != 100 || h.Height != 30 || h.Title != "make -j8" || h.Timestamp != 1e9 || h.Env["TERM"] == "" {
		t.Errorf("%+v", h)
	}
}
