// Command generate prints the assembly of package kernel and the Go
// declarations that go with it. It runs in the directory of that package:
//
//	go generate ./model/native/kernel
//
// Each element-wise program is written once, over vectors of sixteen numbers,
// and printed twice: for processors with AVX-512, where such a vector is one
// register, and for those with AVX2, where it is two. Both therefore do the same
// operations on the same lanes and give the same bits.
package main

import (
	"fmt"
	"os"
)

func main() {
	for name, text := range files() {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// files are the generated files, by name.
func files() map[string]string {
	tiles, elements := newPrinter(), newPrinter()
	printTiles(tiles)
	printElements(elements)
	return map[string]string{
		"tiles_amd64.s":          tiles.assembly(),
		"tiles_stub_amd64.go":    tiles.declarations(),
		"elements_amd64.s":       elements.assembly(),
		"elements_stub_amd64.go": elements.declarations(),
	}
}
