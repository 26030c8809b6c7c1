package rawio

// Limits of the data that a goroutine may move without a wait before other goroutines must
// run, in bytes and in system calls. Such an amount takes well under a millisecond when a PTY
// floods, in large pieces as well as in small ones.
const (
	maxHot   = 64 << 10
	maxCalls = 16
	perRead  = 4 // system calls that one read of a socket counts for, because it may be large
)

// A Budget counts the bytes and the system calls of one goroutine since it last waited. The
// zero value is ready to use.
type Budget struct{ hot, calls int }

// Spend adds n bytes that were moved with the given number of system calls. waited tells that
// the goroutine had to wait for them, which resets the Budget. If a limit is reached, Spend
// calls Yield, so that other goroutines with ready descriptors run.
func (b *Budget) Spend(n, calls int, waited bool) {
	if waited {
		*b = Budget{}
	}
	b.hot += n
	if b.calls += calls; b.hot >= maxHot || b.calls >= maxCalls {
		*b = Budget{}
		Yield()
	}
}
