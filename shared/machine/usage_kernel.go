//go:build unix && !linux

package machine

func (*Usage) addKernels() {}
