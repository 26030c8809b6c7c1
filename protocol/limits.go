package protocol

import (
	"strconv"
	"strings"
)

// Limits are the limits of the resources of all processes of a session together. If a field is
// absent, the limit stays as it is; at the start of a session the settings' default applies. A
// zero removes the limit. A session can have limits only if it has a cage, which is a control
// group of its own.
type Limits struct {
	MemoryMax  *uint64 `json:"memory_max,omitempty"`  // bytes; if the session needs more, the kernel kills one of its processes
	MemoryHigh *uint64 `json:"memory_high,omitempty"` // bytes; if the session needs more, the kernel slows it down and reclaims memory
	PIDsMax    *uint64 `json:"pids_max,omitempty"`    // processes and threads; a fork beyond the limit fails
	CPUMax     *uint64 `json:"cpu_max,omitempty"`     // thousandths of a processor: 1500 is one and a half
	CPUWeight  *uint64 `json:"cpu_weight,omitempty"`  // share against other sessions if processors are scarce, 1 to 10000; the kernel's default is 100
}

// Smallest and largest values of Limits. Those of cpu_max and cpu_weight are the kernel's for a
// period of 100 ms. The largest pids_max is PID_MAX_LIMIT of a 64-bit kernel. A shell needs about
// 2 MiB, so a memory limit below 1 MiB is probably a number without its unit.
const (
	MinMemoryLimit = 1 << 20
	MaxMemoryLimit = 1 << 60
	MaxPIDsLimit   = 1 << 22
	MinCPULimit    = 10
	MaxCPULimit    = 1_000_000
	MaxCPUWeight   = 10_000
)

// A LimitField is one field of Limits, for code that handles all fields in the same way.
type LimitField struct {
	Name     string                 // name of the field in messages, settings and labels
	Min, Max uint64                 // smallest and largest value, besides 0
	Of       func(*Limits) **uint64 // returns the field
	memory   bool
	cpu      bool
}

// LimitFields returns all fields of Limits in their order.
func LimitFields() []LimitField {
	return []LimitField{
		{LabelMemoryMax, MinMemoryLimit, MaxMemoryLimit, func(l *Limits) **uint64 { return &l.MemoryMax }, true, false},
		{LabelMemoryHigh, MinMemoryLimit, MaxMemoryLimit, func(l *Limits) **uint64 { return &l.MemoryHigh }, true, false},
		{LabelPIDsMax, 1, MaxPIDsLimit, func(l *Limits) **uint64 { return &l.PIDsMax }, false, false},
		{LabelCPUMax, MinCPULimit, MaxCPULimit, func(l *Limits) **uint64 { return &l.CPUMax }, false, true},
		{LabelCPUWeight, 1, MaxCPUWeight, func(l *Limits) **uint64 { return &l.CPUWeight }, false, false},
	}
}

// LimitFieldOf returns the field with the given name. ok is false if there is none.
func LimitFieldOf(name string) (f LimitField, ok bool) {
	for _, f := range LimitFields() {
		if f.Name == name {
			return f, true
		}
	}
	return f, false
}

// IsZero reports whether all fields are absent.
func (l Limits) IsZero() bool { return l == Limits{} }

// Validate returns invalid_argument if a value is too small or too large.
func (l Limits) Validate() error {
	for _, f := range LimitFields() {
		if v := *f.Of(&l); v != nil && *v != 0 && (*v < f.Min || *v > f.Max) {
			return Errorf(CodeInvalidArgument, "%s must be %s to %s, or 0 for none, but it is %s", f.Name, f.Format(f.Min), f.Format(f.Max), f.Format(*v))
		}
	}
	return nil
}

// Over returns l, with the values of base in the fields that are absent in l.
func (l Limits) Over(base Limits) Limits {
	for _, f := range LimitFields() {
		if v := f.Of(&l); *v == nil {
			*v = *f.Of(&base)
		}
	}
	return l
}

// Parse parses a value in the form for people and sets the field in l. Memory has units of 1024
// (512M, 1.5G), processors are a number (1.5) or a percentage (150%), and "none" or 0 means no
// limit. If text is not valid, Parse returns invalid_argument and leaves l unchanged.
func (f LimitField) Parse(l *Limits, text string) error {
	v, err := f.parse(strings.TrimSpace(text))
	if err != nil {
		return Errorf(CodeInvalidArgument, "%s: %.40q is not %s", f.Name, text, f.form())
	}
	var only Limits
	*f.Of(&only) = &v
	if err := only.Validate(); err != nil {
		return err
	}
	*f.Of(l) = &v
	return nil
}

// form describes the form of a value for the error of Parse.
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
	if err == nil && !(n >= 0 && n*scale < 1<<63) { // the negation also excludes NaN
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

// Format returns a value in the form that Parse accepts.
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

// FormatBytes returns a size in the largest unit of 1024 in which the number is at least 1, with
// at most one decimal: "512M", "1.5G".
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

// String lists the limits for people, as in "memory_max 512M, pids_max 100". If there are none, it
// returns "".
func (l Limits) String() string {
	var all []string
	for _, f := range LimitFields() {
		if v := *f.Of(&l); v != nil && *v != 0 {
			all = append(all, f.Name+" "+f.Format(*v))
		}
	}
	return strings.Join(all, ", ")
}

// MaxOOMKilled is the largest number of processes in Cage.OOMKilled.
const MaxOOMKilled = 8

// A Cage contains the kernel's counters of a session's control group. A counter is absent if the
// kernel does not provide it.
type Cage struct {
	Limits          Limits   `json:"limits,omitzero"`
	MemoryBytes     uint64   `json:"memory_bytes,omitempty"`      // memory in use now, including cached files
	MemoryPeakBytes uint64   `json:"memory_peak_bytes,omitempty"` // largest MemoryBytes so far
	PIDs            uint64   `json:"pids,omitempty"`              // processes and threads now
	PIDsPeak        uint64   `json:"pids_peak,omitempty"`
	UserMS          int64    `json:"user_ms"`               // processor time of all processes that ever ran in the group
	SystemMS        int64    `json:"system_ms"`             // processor time of the kernel for these processes
	OOMs            uint64   `json:"ooms,omitempty"`        // how often the session ran out of memory at its own limit
	OOMKills        uint64   `json:"oom_kills,omitempty"`   // processes that the kernel killed because of memory, at a limit of the session or of the machine
	OOMKilled       []string `json:"oom_killed,omitempty"`  // the last killed processes, as "hog (pid 12)", if the kernel's log is readable; at most MaxOOMKilled
	PIDsDenied      uint64   `json:"pids_denied,omitempty"` // forks that failed at pids_max
}

// A CagesStatus tells whether new sessions get cages, and which cages of ended sessions still
// contain processes.
type CagesStatus struct {
	Dir         string   `json:"dir,omitempty"`         // the control group above the cages; "" if sessions get none
	Controllers []string `json:"controllers,omitempty"` // controllers by which sessions can be limited: memory, pids and cpu
	Off         string   `json:"off,omitempty"`         // why sessions get no cages or no limits, and how to change that
	Left        []string `json:"left,omitempty"`        // cages of ended sessions in which processes still run; at most MaxCagesLeft
}

// MaxCagesLeft is the largest number of cages in CagesStatus.Left.
const MaxCagesLeft = 16
