package rawio

// How much may be moved without a wait before everybody else gets a look, in
// bytes and in system calls: well under a millisecond's worth of a PTY's flood,
// whether it comes in large pieces or in small ones.
const (
	maxHot   = 64 << 10
	maxCalls = 16
	perRead  = 4 // what a read of a socket counts for, which may be a long one
)

// A Budget counts what one goroutine moves without waiting. Its zero value is
// ready.
type Budget struct{ hot, calls int }

// Spend notes n bytes that were moved in so many calls, waited for or not. Where
// too much came without a wait it parks the caller for as long as it takes to
// ask the netpoller what else is ready.
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
