//go:build unix

package vt_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/vt"
)

// A dearHistory is a kind of output that fills the largest history. Its lines are wrapped, so that another number of
// columns changes every row.
type dearHistory struct {
	name string
	unit func(i int) string
}

var dearHistories = []dearHistory{
	{"ascii", func(int) string { return "plain text and more of it " }},
	{"latin", func(int) string { return "naïve café, déjà vu; " }},
	{"wide", func(int) string { return "中文字符测试" }},
	{"mixed", func(int) string { return "a中b" }},
	{"combining", func(int) string { return "e\u0301\u0302" }},
	{"graphemes", func(int) string { return "\x1b[?2027h\U0001f468\u200d\U0001f469\U0001f1e6\U0001f1e7" }},
	{"colours", func(i int) string { return fmt.Sprintf("\x1b[3%dmr\x1b[4%dmg", i%8, i/8%8) }},
	{"styles", func(i int) string { return fmt.Sprintf("\x1b[38;2;%d;%d;%dmu", i>>16&255, i>>8&255, i&255) }},
	{"links", func(i int) string { return fmt.Sprintf("\x1b]8;;http://%d\x1b\\l", i) }},
	{"blanks", func(int) string { return "\x1b[44m\x1b[2C\x1b[Kx" }},
}

// fill returns a terminal whose history has so many bytes, in lines of about so many columns.
func (d dearHistory) fill(cols, columns, history int) *vt.Term {
	t := vt.New(vt.Config{Cols: cols, HistoryLines: 1_000_000, HistoryBytes: history})
	var b []byte
	lines := 0
	for i, printed := 0, 0; ; i++ {
		u := d.unit(i)
		b = append(b, u...)
		if printed += len(strings.TrimLeft(u, "\x1b")); printed > columns {
			b, printed = append(b, "\r\n"...), 0
		}
		if len(b) < 1<<20 {
			continue
		}
		t.Write(b)
		b = b[:0]
		if n := t.HistoryLines(); n == lines && i > 1<<18 || n == 1_000_000 || t.HistoryBytes() > history*15/16 {
			return t
		}
		lines = t.HistoryLines()
	}
}

// TestResizeDear bounds the processor time of a change of the columns for a quarter of the largest history, for each
// kind of content.
func TestResizeDear(t *testing.T) {
	if raceEnabled || testing.Short() || vt.OtherCore {
		t.Skip("measures the time of the core that programs use")
	}
	const most = 400 * time.Millisecond // four times the usual time
	for _, d := range dearHistories {
		filled := d.fill(80, 1000, 16<<20)
		for _, to := range []int{79, 2000} {
			t.Run(fmt.Sprintf("%s to %d", d.name, to), func(t *testing.T) {
				term := filled.Copy(filled.HistoryLines())
				runtime.GC()
				began := cpu()
				term.Resize(to, 24)
				if took := cpu() - began; took > most {
					t.Errorf("a resize of %d rows took %v of processor time, want at most %v", term.HistoryLines(), took, most)
				}
			})
		}
	}
}

// BenchmarkResizeDear changes the columns of a terminal whose history is full.
func BenchmarkResizeDear(b *testing.B) {
	for _, d := range dearHistories {
		for _, packed := range []bool{false, true} {
			for _, tt := range []struct{ cols, columns, to int }{{80, 1000, 79}, {80, 1000, 100}, {80, 1000, 2000}, {80, 60, 78}, {80, 120, 200}, {2000, 4000, 200}} {
				name := fmt.Sprintf("%s/%d-of-%d-to-%d", d.name, tt.cols, tt.columns, tt.to)
				if packed {
					name += "-packed"
				}
				b.Run(name, func(b *testing.B) {
					var spent, best time.Duration
					var most uint64
					for range b.N {
						b.StopTimer()
						t := d.fill(tt.cols, tt.columns, 64<<20)
						if packed {
							t.Pack()
						}
						rows := t.HistoryLines()
						runtime.GC()
						b.StartTimer()
						_, peak := testkit.WatchHeap()
						began := cpu()
						t.Resize(tt.to, 24)
						took := cpu() - began
						spent += took
						if best == 0 || took < best {
							best = took
						}
						most = max(most, peak())
						b.ReportMetric(float64(rows), "rows")
						runtime.KeepAlive(t)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(float64(best)/1e6, "best-cpu-ms")
					b.ReportMetric(float64(spent)/1e6/float64(b.N), "cpu-ms")
					b.ReportMetric(float64(most)/(1<<20), "peak-MiB")
				})
			}
		}
	}
}
