package main

import "fmt"

// printTranspose prints the transposition of eight rows, one block of eight columns at a
// time: it interleaves pairs of rows, then pairs of pairs, and then joins the halves.
func printTranspose(p *printer) {
	p.function("avx2Transpose",
		"sets to, which has 8·blocks rows, to the transpose of the eight rows of from;\n// strides are in bytes, blocks is at least 1.",
		[]argument{pointer("to"), integer("toRow"), pointer("from"), integer("fromRow"), integer("blocks")}, nil)
	p.load("to", "DI", "toRow", "DX", "from", "SI", "fromRow", "R8", "blocks", "CX")
	p.op("LEAQ (R8)(R8*2), R12")
	p.op("LEAQ (SI)(R8*4), R13")
	p.op("LEAQ (DX)(DX*2), R9")
	rows := []string{"(SI)", "(SI)(R8*1)", "(SI)(R8*2)", "(SI)(R12*1)", "(R13)", "(R13)(R8*1)", "(R13)(R8*2)", "(R13)(R12*1)"}
	register := func(i int) string { return fmt.Sprintf("Y%d", i) }
	p.loop("CX", 32, []string{"SI", "R13"}, func() {
		for i, row := range rows {
			p.op("VMOVUPS %s, %s", row, register(i))
		}
		for i := range 4 { // interleave rows 2i and 2i+1
			p.op("VUNPCKLPS %s, %s, %s", register(2*i+1), register(2*i), register(8+2*i))
			p.op("VUNPCKHPS %s, %s, %s", register(2*i+1), register(2*i), register(9+2*i))
		}
		for i := range 4 { // columns 2i and 2i+1 of four rows
			low, high := 8+i%2+i/2*4, 10+i%2+i/2*4
			p.op("VSHUFPS $0x44, %s, %s, %s", register(high), register(low), register(2*i))
			p.op("VSHUFPS $0xEE, %s, %s, %s", register(high), register(low), register(2*i+1))
		}
		for i := range 4 { // columns of all eight rows
			p.op("VPERM2F128 $0x20, %s, %s, %s", register(4+i), register(i), register(8+i))
			p.op("VPERM2F128 $0x31, %s, %s, %s", register(4+i), register(i), register(12+i))
		}
		p.op("LEAQ (DI)(DX*4), R10")
		for i, row := range []string{"(DI)", "(DI)(DX*1)", "(DI)(DX*2)", "(DI)(R9*1)", "(R10)", "(R10)(DX*1)", "(R10)(DX*2)", "(R10)(R9*1)"} {
			p.op("VMOVUPS %s, %s", register(8+i), row)
		}
		p.op("LEAQ (DI)(DX*8), DI")
	})
	p.end()
}
