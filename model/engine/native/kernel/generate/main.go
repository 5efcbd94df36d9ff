// Command generate prints the assembly of package kernel and the Go
// declarations that go with it. It runs in the directory of that package:
//
//	go generate ./model/engine/native/kernel
//
// Each element-wise program is written once, over vectors of sixteen numbers, and
// printed three times: for processors with AVX-512, where such a vector is one
// register, for those with AVX2, where it is two, and for those of arm64, where
// NEON has four. All therefore do the same operations on the same lanes and give
// the same bits.
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

// files returns the contents of the generated files by file name.
func files() map[string]string {
	files := map[string]string{}
	add := func(name string, p *printer) {
		files[fmt.Sprintf("%s_%s.s", name, p.architecture)] = p.assembly()
		files[fmt.Sprintf("%s_stub_%s.go", name, p.architecture)] = p.declarations()
	}
	tiles, elements := newPrinter("amd64"), newPrinter("amd64")
	printTiles(tiles)
	printElements(elements, avxMachines())
	add("tiles", tiles)
	add("elements", elements)
	transpose := newPrinter("amd64")
	printTranspose(transpose)
	add("transpose", transpose)

	neonTiles, neonElements := newPrinter("arm64"), newPrinter("arm64")
	neonTiles.lower = nil // these tiles are written in instructions of NEON
	printNeonTiles(neonTiles)
	printElements(neonElements, []machine{neonMachine()})
	add("tiles", neonTiles)
	add("elements", neonElements)
	return files
}
