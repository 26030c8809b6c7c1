package vt

// Exported for tests outside of the package, which use vttest.
var Fixtures = fixtures

// OtherCore reports whether this is the core of the build tag vtother.
const OtherCore = alwaysCells

// HistoryBytes returns the bytes of the history.
func (t *Term) HistoryBytes() int { return t.hist.bytes }
