package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// Each test that holds a rule of the versions exists.
func TestVersionPolicy(t *testing.T) {
	const page = ".github/docs/versions.md"
	named := regexp.MustCompile("`(Test\\w+)` of `([a-z/]+)`").FindAllStringSubmatch(read(t, page), -1)
	if len(named) < 15 {
		t.Errorf("%s names %d tests", page, len(named))
	}
	for _, n := range named {
		files, err := filepath.Glob(filepath.Join(source, filepath.FromSlash(n[2]), "*_test.go"))
		testkit.Must(t, err)
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			testkit.Must(t, err)
			found = found || strings.Contains(string(text), "\nfunc "+n[1]+"(")
		}
		if !found {
			t.Errorf("%s names %s of %s, which does not exist", page, n[1], n[2])
		}
	}
}
