package rollout

import (
	"fmt"
	"strconv"
	"strings"
)

// A Size is the number of hosts in a wave.
type Size struct {
	Count     int
	IsPercent bool // Count is a percentage of all hosts to upgrade, rounded up
}

// ParseSizes parses sizes like "1,10%,50%".
func ParseSizes(text string) (sizes []Size, err error) {
	for word := range strings.SplitSeq(text, ",") {
		number, isPercent := strings.CutSuffix(strings.TrimSpace(word), "%")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || isPercent && n > 100 {
			return nil, fmt.Errorf("%.80q is no size of a wave: it must be a number of hosts, or a percentage of at most 100%%", word)
		}
		sizes = append(sizes, Size{n, isPercent})
	}
	return sizes, nil
}

// Plan divides hosts into waves of the given sizes, in their order. Hosts that remain are the last wave.
func Plan(hosts []string, sizes []Size) (waves [][]string) {
	total := len(hosts)
	for _, s := range sizes {
		n := s.Count
		if s.IsPercent {
			n = (total*s.Count + 99) / 100
		}
		if n = min(n, len(hosts)); n > 0 {
			waves, hosts = append(waves, hosts[:n]), hosts[n:]
		}
	}
	if len(hosts) > 0 {
		waves = append(waves, hosts)
	}
	return waves
}
