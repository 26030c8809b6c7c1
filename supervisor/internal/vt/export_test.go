package vt

// For tests outside the package, which may use vttest.
var Fixtures = fixtures

// OtherCore tells that this is the core of the tag vtother.
const OtherCore = alwaysCells

// HistoryBytes returns the bytes that the history takes.
func (t *Term) HistoryBytes() int { return t.hist.bytes }
