package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	inline   = regexp.MustCompile("`[^`]*`")
	heading  = regexp.MustCompile(`^#{1,6} +(.+?) *$`)
	notASlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Every relative link of every page must lead to an existing file, and to an existing heading in it.
func TestLinks(t *testing.T) {
	n := 0
	err := filepath.WalkDir(source, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "node_modules" || e.Name() == ".git"):
			return filepath.SkipDir
		case e.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		page, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		code := false
		for i, line := range strings.Split(read(t, page), "\n") {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if code {
				continue
			}
			for _, m := range link.FindAllStringSubmatch(inline.ReplaceAllString(line, ""), -1) {
				n++
				if why := dead(t, path, m[1]); why != "" {
					t.Errorf("%s:%d: %s: %s", page, i+1, m[1], why)
				}
			}
		}
		return nil
	})
	if err != nil || n < 10 {
		t.Errorf("%d links, %v", n, err)
	}
}

// dead returns why a link of a page is dead, or "".
func dead(t *testing.T, page, to string) string {
	u, err := url.Parse(to)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" {
		return ""
	}
	target := page
	if u.Path != "" {
		target = filepath.Join(filepath.Dir(page), filepath.FromSlash(u.Path))
	}
	if _, err := os.Stat(target); err != nil {
		return "there is no such file"
	}
	if u.Fragment == "" {
		return ""
	}
	name, err := filepath.Rel(source, target)
	if err != nil {
		return err.Error()
	}
	code := false
	for line := range strings.Lines(read(t, name)) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if m := heading.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil && !code && slug(m[1]) == u.Fragment {
			return ""
		}
	}
	return "there is no such heading"
}

// slug returns the anchor that GitHub makes from a heading.
func slug(heading string) string {
	return strings.ReplaceAll(notASlug.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}
