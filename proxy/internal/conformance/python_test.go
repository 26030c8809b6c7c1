package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"holdfast/shared/testkit"
)

// exampleBlock is the client in the guide.
var exampleBlock = regexp.MustCompile("(?s)<!-- file: client.py -->\n```python\n(.*?)```")

// The client that the guide write-client.md shows passes.
func TestPythonExample(t *testing.T) {
	t.Parallel()
	python := python3(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", ".github", "docs", "write-client.md"))
	testkit.Must(t, err)
	block := exampleBlock.FindSubmatch(page)
	if block == nil {
		t.Fatal("the guide has no block with the file client.py")
	}
	harness, err := os.ReadFile(filepath.Join("testdata", "example_harness.py"))
	testkit.Must(t, err)
	dir := t.TempDir() // Python imports from the directory of its program
	for name, content := range map[string][]byte{"client.py": block[1], "harness.py": harness} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	// The patience is that of the command, because authors copy this harness and run the command.
	passes(t, Options{Start: Program(python, "-B", filepath.Join(dir, "harness.py")), Jobs: 4})
}

// The Python package passes. It has no WebSocket.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	harness := filepath.Join("..", "..", "client", "python", "tests", "harness.py")
	passes(t, Options{Start: Program(python3(t), "-B", harness), Patience: patience, Jobs: 4})
}

// python3 returns the path of Python. It skips the test if there is no Python, unless HOLDFAST_REQUIRE_PYTHON is 1.
func python3(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil && os.Getenv("HOLDFAST_REQUIRE_PYTHON") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	return path
}
