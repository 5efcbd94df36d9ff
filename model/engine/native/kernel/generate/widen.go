package main

import "fmt"

func printWidenBF16(g *program) {
	f := forms()[1]
	g.begin("WidenBF16", "sets to to the numbers of from.",
		[]argument{pointer("to"), {"from", f.kind}, integer("n")}, nil)
	g.load("to", "DI", "from", "SI", "n", "CX")
	x := g.register(0)
	g.loop("CX", 32, []string{"SI"}, func() {
		g.each(func(_, offset int) {
			g.widen(f, fmt.Sprintf("%d(SI)", offset/2), x)
			g.op("VMOVUPS %s, %d(DI)", x, offset)
		})
		g.op("ADDQ $64, DI")
	})
	g.end()
}

func printWidenQ8(g *program) {
	f := forms()[2]
	g.begin("WidenQ8", fmt.Sprintf("sets to to the numbers of from times their factors: %d rows of n vectors,\n// whose columns have one factor each.", blockDepth),
		[]argument{pointer("to"), {"from", f.kind}, pointer("factors"), integer("n")}, nil)
	g.load("to", "DI", "from", "SI", "factors", "R8", "n", "R9")
	g.op("MOVQ R9, R10")
	g.op("SHLQ $6, R10") // bytes of a row of to
	g.op("MOVQ R9, R11")
	g.op("SHLQ $4, R11") // bytes of a row of from
	g.op("MOVQ R9, BX")
	x, factors := g.register(0), g.vector()
	g.loop("BX", 0, nil, func() {
		g.each(func(part, offset int) { g.op("VMOVUPS %d(R8), %s", offset, factors[part]) })
		g.op("MOVQ DI, R12")
		g.op("MOVQ SI, R13")
		g.op("MOVQ $%d, CX", blockDepth)
		g.loop("CX", 0, nil, func() {
			g.each(func(part, offset int) {
				g.widen(f, fmt.Sprintf("%d(R13)", offset/4), x)
				g.op("VMULPS %s, %s, %s", factors[part], x, x)
				g.op("VMOVUPS %s, %d(R12)", x, offset)
			})
			g.op("ADDQ R10, R12")
			g.op("ADDQ R11, R13")
		})
		g.op("ADDQ $64, R8")
		g.op("ADDQ $64, DI")
		g.op("ADDQ $16, SI")
	})
	g.end()
}
