package manual

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"holdfast/shared/testkit"
)

func tree() *Manual {
	root := &cobra.Command{Use: "prog", Short: "Do things", Run: func(*cobra.Command, []string) {}}
	root.PersistentFlags().String("dir", "", "`directory` for all")
	sub := &cobra.Command{
		Use: "sub ID", Short: "Do one thing", Run: func(*cobra.Command, []string) {},
		Long: "Do one thing. And\nanother.\n\n.it's no request: \\n --x ~ ^ `\n\na   table\n.of\ttwo",
	}
	sub.Flags().IntP("number", "n", 3, "how `many`")
	sub.Flags().String("which", "a", "")
	sub.Flags().Bool("quick", false, "")
	sub.Flags().String("all", "", "also `n` more")
	sub.Flags().Lookup("all").NoOptDefVal = "x"
	sub.Flags().Bool("secret", false, "")
	_ = sub.Flags().MarkHidden("secret")
	sub.Example = "  prog sub x -n 4 --quick # so"
	sub.AddCommand(&cobra.Command{Use: "part", Short: "Do a part", Example: "  prog sub part", Run: func(*cobra.Command, []string) {}})
	root.AddCommand(sub, &cobra.Command{Use: "hidden", Hidden: true, Run: func(*cobra.Command, []string) {}})
	return &Manual{Root: root, Version: "v1.2.3", Date: time.Unix(0, 0).UTC()}
}

func TestPage(t *testing.T) {
	dir := t.TempDir()
	m := tree()
	testkit.Must(t, m.Write(dir))
	if _, err := os.Stat(filepath.Join(dir, "prog-hidden.1")); err == nil {
		t.Error("a hidden command has a page")
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		testkit.Must(t, err)
		return string(data)
	}
	page := read("prog-sub.1")
	for _, want := range []string{
		".TH \"PROG\\-SUB\" 1 1970-01-01 \"prog v1.2.3\" Holdfast\n",
		".SH NAME\nprog\\-sub \\- do one thing\n",
		"\n\\fBprog sub\\fR ID [flags]\n",
		"\nDo one thing.\nAnd another.\n.PP\n\\&.it\\(aqs no request:\n\\en \\-\\-x \\(ti \\(ha \\(ga\n.PP\n.nf\na   table\n\\&.of    two\n.fi\n",
		".TP\n\\fB\\-n\\fR, \\fB\\-\\-number\\fR \\fImany\\fR\nhow many (default 3)\n",
		"\\fB\\-\\-which\\fR \\fIstring\\fR\n",
		"(default \"a\")",
		".TP\n\\fB\\-\\-quick\\fR\n",
		"\\fB\\-\\-all\\fR[=\\fIn\\fR]\nalso n more\n",
		"those of all commands, \\fB\\-\\-dir\\fR",
		".SH EXAMPLES\n.nf\nprog sub x \\-n 4 \\-\\-quick # so\n.fi\n",
		".SH COMMANDS\n.TP\n\\fBprog\\-sub\\-part\\fR(1)\nDo a part\n",
		".SH SEE ALSO\n\\fBprog\\fR(1),\n\\fBprog\\-sub\\-part\\fR(1)\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if part := read("prog-sub-part.1"); !strings.Contains(part, ".SH EXAMPLES\n.nf\nprog sub part\n") || !strings.HasSuffix(part, ".SH SEE ALSO\n\\fBprog\\-sub\\fR(1)\n") {
		t.Errorf("the page of a subcommand is:\n%s", part)
	}
	if strings.Contains(page, "secret") {
		t.Error("the page contains a hidden flag")
	}
}

func TestExamplesOfWhatIsNoMore(t *testing.T) {
	for _, example := range []string{"prog gone", "prog sub --gone", "prog sub -n many"} {
		m := tree()
		m.Root.Example = example
		if err := m.Write(t.TempDir()); err == nil {
			t.Errorf("the example %q is not refused", example)
		}
	}
}

func TestDate(t *testing.T) {
	if got, err := Date(func(string) string { return "86400" }); err != nil || got.Format(time.DateOnly) != "1970-01-02" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := Date(func(string) string { return "" }); err == nil {
		t.Errorf("without SOURCE_DATE_EPOCH the date is %v, want an error", got)
	}
}
