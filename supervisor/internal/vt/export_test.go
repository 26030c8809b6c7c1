package vt

// For tests outside the package, which may use vttest.
var Fixtures = fixtures

// OtherCore tells that this is the core of the tag vtother.
const OtherCore = alwaysCells
