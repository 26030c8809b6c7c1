package vttest

import (
	"bytes"
	"fmt"
	"math/rand"
	"strings"
)

// Listing is typical coloured output: listings of files, messages of compilers, logs and
// diffs, a screen of each in turn.
var Listing = Input{"listing", listingInput}

func listingInput() []byte {
	r := seeded(8)
	var b bytes.Buffer
	for b.Len() < inputBytes {
		print := anyOf(r, []func(*bytes.Buffer, *rand.Rand){fileLine, complaint, logLine, diffLine})
		for range 20 {
			print(&b, r)
		}
	}
	return b.Bytes()
}

// fileLine writes a line of ls -l --color.
func fileLine(b *bytes.Buffer, r *rand.Rand) {
	fmt.Fprintf(b, "-rw-r--r-- 1 root root %8d %s %2d %02d:%02d ",
		r.Intn(1<<20), anyOf(r, []string{"Jan", "Mar", "Sep", "Nov"}), 1+r.Intn(28), r.Intn(24), r.Intn(60))
	name := anyOf(r, words) + "-" + anyOf(r, words)
	switch r.Intn(4) {
	case 0:
		fmt.Fprintf(b, "\x1b[01;34m%s\x1b[0m\r\n", name)
	case 1:
		fmt.Fprintf(b, "\x1b[01;32m%s.sh\x1b[0m\r\n", name)
	default:
		fmt.Fprintf(b, "%s.txt\r\n", name)
	}
}

// complaint writes an error message of a C compiler, with the line of code.
func complaint(b *bytes.Buffer, r *rand.Rand) {
	at := r.Intn(30)
	fmt.Fprintf(b, "\x1b[01m\x1b[Ksrc/%s.c:%d:%d:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[K%s\x1b[m\x1b[K\r\n",
		anyOf(r, words), r.Intn(2000), at, wordLine(r, 20+r.Intn(20)))
	fmt.Fprintf(b, "%5d | %s \x1b[01;31m\x1b[K%s\x1b[m\x1b[K(%s);\r\n", r.Intn(2000), wordLine(r, at+1), anyOf(r, words), anyOf(r, words))
	fmt.Fprintf(b, "      | %s\x1b[01;31m\x1b[K^~~~~~\x1b[m\x1b[K\r\n", strings.Repeat(" ", at+2))
}

// logLine writes a line of a log with coloured time, level and field names.
func logLine(b *bytes.Buffer, r *rand.Rand) {
	level := anyOf(r, []string{"\x1b[32mINF\x1b[0m", "\x1b[33mWRN\x1b[0m", "\x1b[1m\x1b[31mERR\x1b[0m\x1b[0m"})
	fmt.Fprintf(b, "\x1b[90m%02d:%02d:%02d\x1b[0m %s %s \x1b[36m%s=\x1b[0m%d \x1b[36m%s=\x1b[0m%s\r\n",
		r.Intn(24), r.Intn(60), r.Intn(60), level, wordLine(r, 20+r.Intn(15)), anyOf(r, words), r.Intn(100000), anyOf(r, words), anyOf(r, words))
}

// diffLine writes a line of git diff --color.
func diffLine(b *bytes.Buffer, r *rand.Rand) {
	text := wordLine(r, 30+r.Intn(40))
	switch r.Intn(4) {
	case 0:
		fmt.Fprintf(b, "\x1b[32m+\x1b[m\x1b[32m%s\x1b[m\r\n", text)
	case 1:
		fmt.Fprintf(b, "\x1b[31m-%s\x1b[m\r\n", text)
	default:
		fmt.Fprintf(b, " %s\r\n", text)
	}
}
