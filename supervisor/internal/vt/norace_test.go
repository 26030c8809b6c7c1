//go:build !race

package vt_test

const raceEnabled = false
