package main

import "fmt"

// form is the form that the numbers of B have in memory.
type form struct {
	name  string // in the names of functions
	kind  string // type of the pointer to B
	bytes int    // of a number
}

// forms returns float32, bfloat16, and integers of eight bits. Of the integers, 32 rows
// of a column share a factor.
func forms() []form { return []form{{"", "*float32", 4}, {"BF16", "*uint16", 2}, {"Q8", "*int8", 1}} }

// scaled reports whether numbers have factors.
func (f form) scaled() bool { return f.bytes == 1 }

// printTiles prints the inner kernels of the matrix product. A tile is a few
// rows of C by one or two vectors; it stays in registers while k runs upwards,
// so each element of C is one chain of fused multiply-adds, whatever the tile.
func printTiles(p *printer) {
	for _, f := range forms() {
		for _, m := range avxMachines() {
			rows, widths := []int{8, 4, 2, 1}, []int{32, 16}
			if m.parts() == 2 { // sixteen registers hold four rows by sixteen columns
				rows, widths = rows[1:], widths[1:]
			}
			for _, width := range widths {
				for _, r := range rows {
					printTile(p, f, m, r, width)
				}
			}
		}
	}
}

func printTile(p *printer, f form, m machine, rows, width int) {
	name := fmt.Sprintf("%s%sTile%dx%d", m.name, f.name, rows, width)
	p.tile(f, name, rows, width)
	p.load("c", "DI", "cRow", "DX", "a", "SI", "aRow", "R8", "aStep", "R9", "b", "R10", "bRow", "R11", "k", "CX", "add", "AX")
	columns := width * 4 / m.bytes
	sum := func(row, column int) string { return m.register(row*columns + column) }
	right := func(column int) string { return m.register(rows*columns + column) }
	left := func(row int) string { return m.register(rows*columns + columns + row%2) }
	factor := func(column int) string { return m.register(rows*columns + columns + 2 + column) }
	address := []string{"(SI)", "(SI)(R8*1)", "(SI)(R8*2)", "(SI)(R12*1)", "(R13)", "(R13)(R8*1)", "(R13)(R8*2)", "(R13)(R12*1)"}

	if rows > 2 {
		p.op("LEAQ (R8)(R8*2), R12")
	}
	if rows > 4 {
		p.op("LEAQ (SI)(R8*4), R13")
	}
	g := program{printer: p, machine: m}
	for row := range rows {
		for column := range columns {
			g.zero(sum(row, column))
		}
	}
	p.op("TESTQ AX, AX")
	p.op("JZ %s_product", name)
	p.op("MOVQ DI, BX")
	for row := range rows {
		for column := range columns {
			p.op("VMOVUPS %d(BX), %s", column*m.bytes, sum(row, column))
		}
		if row < rows-1 {
			p.op("ADDQ DX, BX")
		}
	}
	fmt.Fprintf(&p.text, "%s_product:\n", name)
	steps := []string{"SI"}
	if rows > 4 {
		steps = append(steps, "R13")
	}
	product := func(counter string) {
		p.loop(counter, 0, nil, func() {
			for column := range columns {
				g.widen(f, fmt.Sprintf("%d(R10)", column*m.bytes*f.bytes/4), right(column))
				if f.scaled() {
					p.op("VMULPS %s, %s, %s", factor(column), right(column), right(column))
				}
			}
			for row := range rows {
				p.op("VBROADCASTSS %s, %s", address[row], left(row))
				for column := range columns {
					p.op("VFMADD231PS %s, %s, %s", right(column), left(row), sum(row, column))
				}
			}
			p.op("ADDQ R11, R10")
			for _, r := range steps {
				p.op("ADDQ R9, %s", r)
			}
		})
	}
	if f.scaled() {
		p.load("factors", "BX")
		p.loop("CX", 0, nil, func() {
			for column := range columns {
				p.op("VMOVUPS %d(BX), %s", column*m.bytes, factor(column))
			}
			p.op("LEAQ (BX)(R11*4), BX")
			p.op("MOVQ $%d, AX", blockDepth)
			product("AX")
		})
	} else {
		product("CX")
	}
	for row := range rows {
		for column := range columns {
			p.op("VMOVUPS %s, %d(DI)", sum(row, column), column*m.bytes)
		}
		if row < rows-1 {
			p.op("ADDQ DX, DI")
		}
	}
	p.end()
}

// blockDepth is how many numbers of a column share a factor.
const blockDepth = 32

// widen loads a register with numbers of B. It converts them to float32, but does not
// multiply them by their factor.
func (g *program) widen(f form, from, to string) {
	switch f.bytes {
	case 4:
		g.op("VMOVUPS %s, %s", from, to)
	case 2:
		g.op("VPMOVZXWD %s, %s", from, to)
		g.op("VPSLLD $16, %s, %s", to, to)
	case 1:
		g.op("VPMOVSXBD %s, %s", from, to)
		g.op("VCVTDQ2PS %s, %s", to, to)
	}
}

// tile begins a kernel of the matrix product.
func (p *printer) tile(f form, name string, rows, columns int) {
	comment := fmt.Sprintf("sets (add = 0) or adds to (add = 1) %d rows by %d columns of C\n// the product of A and B; k is at least 1, strides are in bytes.", rows, columns)
	arguments := []argument{
		pointer("c"), integer("cRow"), pointer("a"), integer("aRow"), integer("aStep"),
		{"b", f.kind}, integer("bRow"), integer("k"), integer("add"),
	}
	if f.scaled() {
		comment += fmt.Sprintf("\n// k counts blocks of %d; factors has a row for each, as long as one of B.", blockDepth)
		arguments = append(arguments, pointer("factors"))
	}
	p.function(name, comment, arguments, nil)
}

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
