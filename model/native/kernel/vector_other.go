//go:build !amd64 || purego

package kernel

func vectorSets() []*Set { return nil }
