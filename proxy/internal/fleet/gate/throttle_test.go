package gate

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// A host may publish its sessions at once, and a host that publishes without end waits.
func TestThrottle(t *testing.T) {
	for _, tt := range []struct {
		name         string
		message      string
		count        int
		least, limit time.Duration
	}{
		{"sessions at once", "PUB x 500\r\n" + strings.Repeat("x", 500) + "\r\n", 20_000, 0, 0},
		{"long messages without end", "PUB x 500000\r\n" + strings.Repeat("x", 500_000) + "\r\n", 400, 9 * time.Second, 11 * time.Second},
		{"short messages without end", "PUB x 0\r\n\r\n", 200_000, 10 * time.Second, 12 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				text := strings.Repeat(tt.message, tt.count)
				n, b := int64(0), rate.NewLimiter(hostRate, hostBurst)
				var err error
				for half := range strings.SplitSeq(text[:len(text)/2]+"\x00"+text[len(text)/2:], "\x00") { // the host connects again in between
					var m int64
					m, err = io.Copy(io.Discard, throttle{io.LimitReader(strings.NewReader(half), int64(len(half))), b})
					n += m
				}
				if took := time.Since(begin); err != nil || n != int64(len(text)) || took < tt.least || took > tt.limit {
					t.Errorf("%d bytes of %d have taken %v, %v", n, len(text), took, err)
				}
			})
		})
	}
}
