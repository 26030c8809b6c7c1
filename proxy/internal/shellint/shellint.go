// Package shellint makes a shell report its prompts and commands to its terminal.
//
// The shell is started so that it reads a script of this package in addition to its user's files:
//
//	bash  --init-file: a file that reads the files that bash would have read, then the script
//	zsh   ZDOTDIR: a .zshenv that first restores the user's ZDOTDIR
//	fish  --init-command, which runs after all files
//
// The shell then prints OSC 133;A and B around its prompt, OSC 633;E with the text of a command
// and 133;C before its output, 133;D with its exit code, and OSC 7 with its directory. Other
// shells' integrations put the text of the command into 133;C (cmdline_url). Here it has a
// sequence of its own for two reasons: 133;C stays short enough to be kept as a mark of its row,
// and the shell need not loop over each character to escape it.
//
// Invariant: a file of the user is neither written nor skipped, and a program that is not an
// interactive shell is started unchanged.
//
// Not here: the use of the marks (the supervisor).
package shellint

import (
	"path/filepath"
	"slices"
	"strings"
)

// Scripts are the files that shells read.
type Scripts struct {
	Runtime string // the runtime directory, which only this user can write to
}

// Apply returns the arguments and the environment that make a shell report its commands, and
// writes the files that it reads. argv is the program and its arguments. env is the requested
// environment, K=V; the last value of a name counts. Neither is changed in place. Both are
// returned unchanged if the program is not a known shell, or if it would not read its user's
// files: if it runs a command or a script, or has any option except those for login and
// interactive shells. An error means that a file could not be written.
func (s Scripts) Apply(argv, env []string) (newArgv, newEnv []string, err error) {
	if !Applies(argv, env) {
		return argv, env, nil
	}
	dir, err := s.install()
	if err != nil {
		return argv, env, err
	}
	newArgv, newEnv = shells[filepath.Base(argv[0])](dir, argv, env)
	return newArgv, newEnv, nil
}

// Applies reports whether Apply changes how a program is started. Bash in POSIX mode ignores the file of Apply.
func Applies(argv, env []string) bool {
	if len(argv) == 0 || slices.ContainsFunc(argv[1:], func(a string) bool { return !isPlain(a) }) {
		return false
	}
	isPOSIX := slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "POSIXLY_CORRECT=") })
	name := filepath.Base(argv[0])
	return shells[name] != nil && !(name == "bash" && isPOSIX)
}

// isPlain reports whether a shell with this argument still reads its user's files.
func isPlain(arg string) bool {
	return slices.Contains([]string{"-i", "-l", "-il", "-li", "--login", "--interactive"}, arg)
}

// isLogin reports whether an argument makes a shell a login shell.
func isLogin(arg string) bool {
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

// bash starts bash with a file of this package. A login shell ignores --init-file, so it is
// started as an ordinary shell, and its file reads the login files.
func bash(dir string, argv, env []string) ([]string, []string) {
	file := "bash-rc"
	if slices.ContainsFunc(argv[1:], isLogin) {
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

// Asked returns the arguments that the user requested, if Apply has changed argv.
func Asked(argv []string) []string {
	if len(argv) < 2 {
		return argv
	}
	if file := strings.TrimSuffix(argv[1], "'"); strings.HasPrefix(argv[1], initCommand) && isInstalled(file) {
		return slices.Delete(slices.Clone(argv), 1, 2)
	}
	if argv[1] != initFile || len(argv) < 3 || !isInstalled(argv[2]) {
		return argv
	}
	asked := slices.Delete(slices.Clone(argv), 1, 3)
	if filepath.Base(argv[2]) == "bash-login" {
		asked = slices.Insert(asked, 1, "-l")
	}
	return asked
}

// isInstalled reports whether install has written a file, by the name of its directory.
func isInstalled(file string) bool {
	return strings.HasPrefix(filepath.Base(filepath.Dir(file)), dirPrefix)
}
