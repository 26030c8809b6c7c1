//go:build !unix

package apiserver

func shutdownFD(uintptr) {}
