package protocol

import "testing"

// Parse must accept the forms that users write, and Format must return a form that Parse accepts.
func TestParseLimits(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       uint64
		formatted  string
	}{
		{"memory_max", "512M", 512 << 20, "512M"},
		{"memory_max", "1.5G", 3 << 29, "1.5G"},
		{"memory_max", " 2gib ", 2 << 30, "2G"},
		{"memory_max", "1048576", 1 << 20, "1M"},
		{"memory_high", "none", 0, "none"},
		{"memory_high", "0", 0, "none"},
		{"pids_max", "100", 100, "100"},
		{"pids_max", "max", 0, "none"},
		{"cpu_max", "1.5", 1500, "1.5"},
		{"cpu_max", "150%", 1500, "1.5"},
		{"cpu_max", "2", 2000, "2"},
		{"cpu_weight", "10000", 10000, "10000"},
	} {
		f, ok := LimitFieldOf(tt.name)
		var l Limits
		if err := f.Parse(&l, tt.text); !ok || err != nil || *f.Of(&l) == nil || **f.Of(&l) != tt.want || f.Format(tt.want) != tt.formatted {
			t.Errorf("%s %q: %v, %v, %s; want %d, %s", tt.name, tt.text, l, err, f.Format(tt.want), tt.want, tt.formatted)
		}
	}
	for _, tt := range []struct{ name, text string }{
		{"memory_max", "512"}, {"memory_max", "-1M"}, {"memory_max", "1e99G"}, {"memory_max", "NaNG"}, {"memory_max", "M"}, {"memory_max", ""}, {"memory_max", "9E"},
		{"pids_max", "1.5"}, {"pids_max", "-1"}, {"pids_max", "5000000"}, {"cpu_max", "0.001"}, {"cpu_max", "2000"}, {"cpu_max", "x%"}, {"cpu_weight", "10001"},
	} {
		f, _ := LimitFieldOf(tt.name)
		var l Limits
		if err := f.Parse(&l, tt.text); CodeOf(err) != CodeInvalidArgument || !l.IsZero() {
			t.Errorf("%s %q: %v, %v, want invalid_argument", tt.name, tt.text, l, err)
		}
	}
}

// A given limit, including zero, must precede the default of the same name.
func TestLimitsOver(t *testing.T) {
	given, defaults := Limits{PIDsMax: new(uint64(0)), CPUMax: new(uint64(500))}, Limits{PIDsMax: new(uint64(9)), MemoryMax: new(uint64(1 << 30))}
	if got, want := given.Over(defaults).String(), "memory_max 1G, cpu_max 0.5"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if l := given.Over(defaults); *l.PIDsMax != 0 {
		t.Errorf("the request has no limit, but the result has %d", *l.PIDsMax)
	}
	if err := (SpawnSpec{Argv: []string{"x"}, Limits: Limits{MemoryMax: new(uint64(512))}}).Validate(); CodeOf(err) != CodeInvalidArgument {
		t.Errorf("Validate with a limit of 512 bytes: %v, want invalid_argument", err)
	}
}
