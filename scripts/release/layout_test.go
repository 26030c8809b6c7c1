package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// The archive must contain each file that its README links to.
func TestReadmeLinks(t *testing.T) {
	r := &release{}
	r.root = filepath.Join("..", "..")
	guides, err := r.guides()
	testkit.Must(t, err)
	there := map[string]bool{}
	var readme []byte
	for _, text := range append(append([]string{}, texts...), guides...) {
		data, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(text)))
		testkit.Must(t, err)
		path, data := shown(text, data)
		if there[path] = true; path == "README.md" {
			readme = data
		}
	}
	links := regexp.MustCompile(`\]\(([^)#]+)`).FindAllSubmatch(readme, -1)
	if len(links) < 10 {
		t.Fatalf("%d links", len(links))
	}
	for _, l := range links {
		if target := string(l[1]); !strings.Contains(target, "://") && !there[target] {
			t.Errorf("README.md links to %s, which is in no archive", target)
		}
	}
}
