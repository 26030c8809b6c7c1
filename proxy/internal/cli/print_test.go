package cli

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// past matches code that writes for people without package plain.
var past = regexp.MustCompile(`fmt\.Print|(Fprint\w*|WriteString|NewWriter)\(os\.(Stdout|Stderr)|os\.(Stdout|Stderr)\.Write|json\.NewEncoder\([^&]`)

// Texts of other people reach a terminal only through package plain.
func TestOutputIsPlain(t *testing.T) {
	var files []string
	for _, dir := range []string{".", "../front", "../serve"} {
		found, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(found) == 0 {
			t.Fatal(dir, found, err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		if name == "print.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			if past.MatchString(lines.Text()) {
				t.Errorf("%s:%d writes without package plain: %s", name, n, strings.TrimSpace(lines.Text()))
			}
		}
		_ = f.Close()
	}
	for _, line := range []string{"fmt.Println(x)", "fmt.Fprintln(os.Stderr, x)", "json.NewEncoder(out).Encode(x)", "os.Stdout.Write(p)"} {
		if !past.MatchString(line) {
			t.Errorf("the expression does not match %s", line)
		}
	}
}
