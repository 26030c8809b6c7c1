// Package shellint has a shell tell its terminal of its prompts and commands.
//
// The shell is started so that it reads a script of ours with its user's files:
//
//	bash  --init-file: a file that reads what bash would have read, then the script
//	zsh   ZDOTDIR: a .zshenv that puts the user's ZDOTDIR back before all else
//	fish  --init-command, which is behind all files
//
// It then prints OSC 133;A and B around its prompt, OSC 633;E with the line of a command
// and 133;C before its output, 133;D with its exit code, and OSC 7 with its directory.
// The line is in a sequence of its own, and not in 133;C as other shells' integrations
// have it (cmdline_url), so that the C stays short enough to be kept as a mark of its
// row, and because its escapes cost a shell no loop over each character.
//
// Invariant: a file of the user's is neither written nor left out, and a program that is
// not an interactive shell is started as it was.
//
// Not here: what is made of the marks (the supervisor's).
package shellint

import (
	"path/filepath"
	"slices"
	"strings"
)

// Scripts are what shells read, in a directory of ours.
type Scripts struct {
	Runtime string // the runtime directory; what is in it is ours alone
}

// Apply returns how to start a shell so that it tells, having written what it reads.
// argv is the program and its arguments, env the environment that was asked for, K=V,
// the last of a name counting. Both come back as they are where the program is no shell
// that is known, or does not read its user's files: with a command or a script to run,
// or with any option but those for login and interactive shells. They are not changed in
// place. An error is one of writing.
func (s Scripts) Apply(argv, env []string) (newArgv, newEnv []string, err error) {
	if len(argv) == 0 || slices.ContainsFunc(argv[1:], func(a string) bool { return !plain(a) }) {
		return argv, env, nil
	}
	start := shells[filepath.Base(argv[0])]
	if start == nil {
		return argv, env, nil
	}
	dir, err := s.install()
	if err != nil {
		return argv, env, err
	}
	newArgv, newEnv = start(dir, argv, env)
	return newArgv, newEnv, nil
}

// plain reports whether an argument leaves a shell one that reads its user's files.
func plain(arg string) bool {
	return slices.Contains([]string{"-i", "-l", "-il", "-li", "--login", "--interactive"}, arg)
}

// login reports whether an argument makes a login shell.
func login(arg string) bool {
	return arg == "--login" || !strings.HasPrefix(arg, "--") && strings.Contains(arg, "l")
}

var shells = map[string]func(dir string, argv, env []string) ([]string, []string){
	"bash": bash,
	"zsh":  zsh,
	"fish": fish,
}

const (
	initFile    = "--init-file"
	initCommand = "--init-command=source "
)

// bash: one that is a login shell would read no file of ours, nor does one of POSIX.
func bash(dir string, argv, env []string) ([]string, []string) {
	if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "POSIXLY_CORRECT=") }) {
		return argv, env
	}
	file := "bash-rc"
	if slices.ContainsFunc(argv[1:], login) {
		file = "bash-login"
	}
	return []string{argv[0], initFile, filepath.Join(dir, file)}, env
}

func zsh(dir string, argv, env []string) ([]string, []string) {
	const variable, kept = "ZDOTDIR=", "HOLDFAST_ZDOTDIR="
	changed := slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, kept) })
	for _, e := range slices.Backward(env) {
		if user, ok := strings.CutPrefix(e, variable); ok {
			changed = append(changed, kept+user)
			break
		}
	}
	return argv, append(changed, variable+filepath.Join(dir, "zsh"))
}

func fish(dir string, argv, env []string) ([]string, []string) {
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(filepath.Join(dir, "fish"))
	return slices.Insert(slices.Clone(argv), 1, initCommand+"'"+quoted+"'"), env
}

// Asked returns what was asked for, of an argv that Apply may have made.
func Asked(argv []string) []string {
	if len(argv) < 2 {
		return argv
	}
	if file := strings.TrimSuffix(argv[1], "'"); strings.HasPrefix(argv[1], initCommand) && ours(file) {
		return slices.Delete(slices.Clone(argv), 1, 2)
	}
	if argv[1] != initFile || len(argv) < 3 || !ours(argv[2]) {
		return argv
	}
	asked := slices.Delete(slices.Clone(argv), 1, 3)
	if filepath.Base(argv[2]) == "bash-login" {
		asked = slices.Insert(asked, 1, "-l")
	}
	return asked
}

// ours reports whether a file is one that install has written, by its name.
func ours(file string) bool {
	return strings.HasPrefix(filepath.Base(filepath.Dir(file)), dirPrefix)
}
