package protocol

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits bounds the resources that all processes of one session may use together.
// An absent field leaves the limit as it is, which at a session's start is the
// default of the settings. A zero takes the limit away. Only a session in a cage,
// a control group of its own, can have limits.
type Limits struct {
	MemoryMax  *uint64 `json:"memory_max,omitempty"`  // bytes; over it the kernel kills a process of the session
	MemoryHigh *uint64 `json:"memory_high,omitempty"` // bytes; over it the kernel slows the session down and takes memory back
	PIDsMax    *uint64 `json:"pids_max,omitempty"`    // processes and threads; a fork beyond it fails
	CPUMax     *uint64 `json:"cpu_max,omitempty"`     // thousandths of one processor: 1500 is one and a half
	CPUWeight  *uint64 `json:"cpu_weight,omitempty"`  // share against other sessions when processors are scarce, 1 to 10000; the kernel's default is 100
}

// Bounds of Limits. Those of cpu_max and cpu_weight are the kernel's for a period of
// 100 ms, and pids_max is at most PID_MAX_LIMIT of a 64-bit kernel. A shell needs
// some 2 MiB, so less memory than 1 MiB is a missing unit rather than a wish.
const (
	MinMemoryLimit = 1 << 20
	MaxMemoryLimit = 1 << 60
	MaxPIDsLimit   = 1 << 22
	MinCPULimit    = 10
	MaxCPULimit    = 1_000_000
	MaxCPUWeight   = 10_000
)

// A LimitField is one field of Limits, for code that treats all of them alike.
type LimitField struct {
	Name     string // in messages, settings and labels
	Min, Max uint64 // of a value that is not zero
	Of       func(*Limits) **uint64
	memory   bool
	cpu      bool
}

// LimitFields returns the fields of Limits in their order.
func LimitFields() []LimitField {
	return []LimitField{
		{LabelMemoryMax, MinMemoryLimit, MaxMemoryLimit, func(l *Limits) **uint64 { return &l.MemoryMax }, true, false},
		{LabelMemoryHigh, MinMemoryLimit, MaxMemoryLimit, func(l *Limits) **uint64 { return &l.MemoryHigh }, true, false},
		{LabelPIDsMax, 1, MaxPIDsLimit, func(l *Limits) **uint64 { return &l.PIDsMax }, false, false},
		{LabelCPUMax, MinCPULimit, MaxCPULimit, func(l *Limits) **uint64 { return &l.CPUMax }, false, true},
		{LabelCPUWeight, 1, MaxCPUWeight, func(l *Limits) **uint64 { return &l.CPUWeight }, false, false},
	}
}

// LimitFieldOf returns the field of that name; ok is false if there is none.
func LimitFieldOf(name string) (f LimitField, ok bool) {
	for _, f := range LimitFields() {
		if f.Name == name {
			return f, true
		}
	}
	return f, false
}

// IsZero reports whether no field is given.
func (l Limits) IsZero() bool { return l == Limits{} }

// Validate returns invalid_argument for a value out of its bounds.
func (l Limits) Validate() error {
	for _, f := range LimitFields() {
		if v := *f.Of(&l); v != nil && *v != 0 && (*v < f.Min || *v > f.Max) {
			return Errorf(CodeInvalidArgument, fmt.Sprintf("%s must be %s to %s, or 0 for none; it is %s", f.Name, f.Format(f.Min), f.Format(f.Max), f.Format(*v)))
		}
	}
	return nil
}

// Over returns l with the fields that only base has.
func (l Limits) Over(base Limits) Limits {
	for _, f := range LimitFields() {
		if v := f.Of(&l); *v == nil {
			*v = *f.Of(&base)
		}
	}
	return l
}

// Parse reads a value as people write it and sets it in l: memory with a unit of
// 1024 (512M, 1.5G), processors as a number (1.5) or in percent (150%), and "none"
// or 0 for no limit. Errors are invalid_argument.
func (f LimitField) Parse(l *Limits, text string) error {
	v, err := f.parse(strings.TrimSpace(text))
	if err != nil {
		return Errorf(CodeInvalidArgument, fmt.Sprintf("%s: %.40q is not %s", f.Name, text, f.form()))
	}
	var one Limits
	*f.Of(&one) = &v
	if err := one.Validate(); err != nil {
		return err
	}
	*f.Of(l) = &v
	return nil
}

func (f LimitField) form() string {
	switch {
	case f.memory:
		return "a size such as 512M or 2G, nor none"
	case f.cpu:
		return "a number of processors such as 1.5 or 150%, nor none"
	}
	return "a whole number, nor none"
}

func (f LimitField) parse(text string) (uint64, error) {
	if text == "none" || text == "max" {
		return 0, nil
	}
	scale := 1.0
	switch {
	case f.memory:
		text = strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text), "IB"), "B")
		if i := strings.IndexByte("KMGT", last(text)); i >= 0 {
			text, scale = text[:len(text)-1], float64(uint64(1)<<(10*(i+1)))
		}
	case f.cpu:
		scale = 1000
		if number, ok := strings.CutSuffix(text, "%"); ok {
			text, scale = number, 10
		}
	default:
		return strconv.ParseUint(text, 10, 64)
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && scale == 1 {
		return n, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && !(n >= 0 && n*scale < 1<<63) { // NaN, too
		err = strconv.ErrRange
	}
	if err != nil {
		return 0, err
	}
	return uint64(n * scale), nil
}

func last(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1]
}

// Format returns a value as Parse reads it.
func (f LimitField) Format(v uint64) string {
	switch {
	case v == 0:
		return "none"
	case f.memory:
		return FormatBytes(v)
	case f.cpu:
		return strconv.FormatFloat(float64(v)/1000, 'f', -1, 64)
	}
	return strconv.FormatUint(v, 10)
}

// FormatBytes returns a size in the largest unit of 1024 that gives a number of 1
// or more, with at most one decimal: "512M", "1.5G".
func FormatBytes(n uint64) string {
	units, v := "BKMGTPE", float64(n)
	i := 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 {
		return strconv.FormatUint(n, 10)
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + units[i:i+1]
}

// String lists the limits for people, "memory_max 512M, pids_max 100"; "" if there
// are none.
func (l Limits) String() string {
	var all []string
	for _, f := range LimitFields() {
		if v := *f.Of(&l); v != nil && *v != 0 {
			all = append(all, f.Name+" "+f.Format(*v))
		}
	}
	return strings.Join(all, ", ")
}

// MaxOOMKilled is how many of the processes that the kernel killed a Cage names.
const MaxOOMKilled = 8

// A Cage is what the kernel counts for a session's control group. A count that the
// kernel does not give is absent.
type Cage struct {
	Limits          Limits   `json:"limits,omitzero"`
	MemoryBytes     uint64   `json:"memory_bytes,omitempty"`      // in use now, files that are cached with it
	MemoryPeakBytes uint64   `json:"memory_peak_bytes,omitempty"` // the most so far
	PIDs            uint64   `json:"pids,omitempty"`              // processes and threads now
	PIDsPeak        uint64   `json:"pids_peak,omitempty"`
	UserMS          int64    `json:"user_ms"`               // processor time of all that ever ran in it
	SystemMS        int64    `json:"system_ms"`             // the kernel's for it
	OOMs            uint64   `json:"ooms,omitempty"`        // how often memory ran out at a limit of this session
	OOMKills        uint64   `json:"oom_kills,omitempty"`   // processes that the kernel killed for memory, at a limit of the session or of the machine
	OOMKilled       []string `json:"oom_killed,omitempty"`  // the last of them, "hog (pid 12)", where the kernel's log can be read; at most MaxOOMKilled
	PIDsDenied      uint64   `json:"pids_denied,omitempty"` // forks that failed at pids_max
}

// A CagesStatus says whether sessions get cages of their own, and what is left of
// earlier ones.
type CagesStatus struct {
	Dir         string   `json:"dir,omitempty"`         // the control group that is divided; "" if sessions get none
	Controllers []string `json:"controllers,omitempty"` // by which sessions can be limited: of memory, pids and cpu
	Off         string   `json:"off,omitempty"`         // why sessions get no cages, or no limits, and how to change it
	Left        []string `json:"left,omitempty"`        // cages of sessions that have ended in which processes still run; at most MaxCagesLeft
}

// MaxCagesLeft is how many cages CagesStatus names.
const MaxCagesLeft = 16
