//go:build !linux

package memory

func preferHugePages([]byte) {}
