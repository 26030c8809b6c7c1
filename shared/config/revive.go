package config

import (
	"fmt"
	"regexp"
	"strings"
)

// A Revive tells how a session is started again that the machine has lost.
type Revive string

// The values of the setting "revive", and of the label of the same name.
const (
	ReviveAsk   Revive = "ask"   // only on request: the command of the session's label or of a template, or else a shell
	ReviveShell Revive = "shell" // attach starts a shell without a question
	ReviveArgv  Revive = "argv"  // attach starts the same as for ReviveAsk without a question, but the session's own command instead of a shell
)

// IsValid reports whether r is one of the values.
func (r Revive) IsValid() bool { return r == ReviveAsk || r == ReviveShell || r == ReviveArgv }

// A ResumeTemplate is the command with which a program continues its work. {NAME} in a word stands for
// the label NAME of the session.
type ResumeTemplate []string

// resumeTemplates are the templates of programs that describe these commands in their manuals. The label
// "conversation" is the id that the program has given to its conversation.
var resumeTemplates = map[string]ResumeTemplate{
	"claude": {"claude", "--resume", "{conversation}"},
	"codex":  {"codex", "resume", "{conversation}"},
}

// setResume parses templates such as "claude=claude --resume {conversation}; codex=", of which the
// second deletes a template.
func setResume(c *Config, v string) error {
	c.ResumeTemplates = map[string]ResumeTemplate{}
	for entry := range strings.SplitSeq(v, ";") {
		program, command, hasCommand := strings.Cut(entry, "=")
		if program = strings.TrimSpace(program); program == "" && !hasCommand {
			continue // of "", and behind a last semicolon
		}
		if program == "" || !hasCommand || strings.ContainsAny(program, "/ \t") {
			return fmt.Errorf("%.60q is not the name of a program, =, and a command", strings.TrimSpace(entry))
		}
		c.ResumeTemplates[program] = strings.Fields(command)
	}
	return nil
}

// ResumeCommand returns the command with which a program continues its work, or nil if there is no
// template for it, or if a label is missing that the template names. A label that begins with a hyphen
// counts as missing, because the program would take it for an option.
func (c Config) ResumeCommand(program string, labels map[string]string) (argv []string) {
	t, ok := c.ResumeTemplates[program]
	if !ok {
		t = resumeTemplates[program]
	}
	placeholder, isMissing := regexp.MustCompile(`\{[^{}]*\}`), false
	for _, word := range t {
		argv = append(argv, placeholder.ReplaceAllStringFunc(word, func(name string) string {
			value := labels[strings.Trim(name, "{}")]
			isMissing = isMissing || value == "" || value[0] == '-'
			return value
		}))
	}
	if isMissing {
		return nil
	}
	return argv
}
