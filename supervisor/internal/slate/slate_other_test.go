//go:build !linux

package slate

func pathOf(*Slate) string { return "" }
