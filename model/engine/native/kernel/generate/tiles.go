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
