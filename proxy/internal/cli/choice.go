package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// A choice is the value of a flag that accepts some words, and the default.
type choice[T ~string] struct {
	value        *T
	defaultValue T
	words        []T
}

// ChoiceVar adds a flag that accepts some words, which the shell completes, and the default value.
func ChoiceVar[T ~string](cmd *cobra.Command, p *T, name string, value T, usage string, words ...T) {
	*p = value
	c := &choice[T]{p, value, words}
	cmd.Flags().Var(c, name, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(c.texts(), cobra.ShellCompDirectiveNoFileComp)) // fails only if there is no such flag
}

// texts returns the words.
func (c *choice[T]) texts() (texts []string) {
	for _, w := range c.words {
		texts = append(texts, string(w))
	}
	return texts
}

// String implements pflag.Value.
func (c *choice[T]) String() string { return string(*c.value) }

// Type implements pflag.Value.
func (c *choice[T]) Type() string { return "string" }

// Set implements pflag.Value.
func (c *choice[T]) Set(text string) error {
	if T(text) != c.defaultValue && !slices.Contains(c.words, T(text)) {
		texts := c.texts()
		last := len(texts) - 1
		return errors.New("it must be " + strings.Join(texts[:last], ", ") + " or " + texts[last])
	}
	*c.value = T(text)
	return nil
}
