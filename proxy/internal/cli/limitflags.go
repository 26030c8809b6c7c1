package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/protocol"
)

// limitFlags adds a flag for each limit, and returns the limits that the flags set.
func limitFlags(cmd *cobra.Command) *protocol.Limits {
	l := &protocol.Limits{}
	for _, f := range protocol.LimitFields() {
		cmd.Flags().Var(&limitValue{l, f}, strings.ReplaceAll(f.Name, "_", "-"), limitUsage[f.Name])
	}
	return l
}

// limitUsage has the help text of each limit's flag.
var limitUsage = map[string]string{
	protocol.LabelMemoryMax:  "`size` of memory, such as 512M, above which the kernel kills a program of the session; none removes the limit",
	protocol.LabelMemoryHigh: "`size` of memory above which the kernel slows the session down",
	protocol.LabelPIDsMax:    "`number` of processes and threads",
	protocol.LabelCPUMax:     "`processors`, such as 1.5 or 150%",
	protocol.LabelCPUWeight:  "`share` against other sessions when processors are scarce, 1 to 10000; the default is 100",
}

// limitValue is the value of one limit's flag.
type limitValue struct {
	all   *protocol.Limits
	field protocol.LimitField
}

func (v *limitValue) String() string {
	if v.all == nil { // package pflag asks a zero value for its default
		return ""
	}
	if n := *v.field.Of(v.all); n != nil {
		return v.field.Format(*n)
	}
	return ""
}

func (v *limitValue) Set(text string) error {
	if err := v.field.Parse(v.all, text); err != nil {
		return errors.New(protocol.AsError(err).Message)
	}
	return nil
}

func (v *limitValue) Type() string { return "limit" }
