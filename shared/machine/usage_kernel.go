//go:build !linux

package machine

func (*Usage) addKernels() {}
