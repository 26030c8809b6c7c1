package vt

// For tests outside the package, which may use vttest.
var Fixtures = fixtures
