package cli

import "testing"

// Each command has the name by which commands finds it.
func TestCommands(t *testing.T) {
	for name := range commands {
		root := newApp(nil).command(name)
		if cmd, _, err := root.Find([]string{name}); err != nil || cmd.Name() != name {
			t.Errorf("%s makes the command %s, %v", name, cmd.Name(), err)
		}
	}
	if all := newApp(nil).command("no such command"); len(all.Commands()) < len(commands)+len(byProxy) {
		t.Errorf("all commands are %d, want %d", len(all.Commands()), len(commands)+len(byProxy))
	}
}

// The name of the command is found behind flags and their values.
func TestFirstWord(t *testing.T) {
	for want, args := range map[string][]string{
		"ls":  {"--dir", "new", "--proxy=attach", "--json", "ls", "kill"},
		"new": {"new", "--", "ls"},
		"":    {"--version"},
	} {
		if got := firstWord(args); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}
