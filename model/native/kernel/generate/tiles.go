package main

import "fmt"

// printTiles prints the inner kernels of the matrix product. A tile is a few
// rows of C by one or two vectors; it stays in registers while k runs upwards,
// so each element of C is one chain of fused multiply-adds, whatever the tile.
func printTiles(p *printer) {
	for _, m := range machines() {
		rows, widths := []int{8, 4, 2, 1}, []int{32, 16}
		if m.parts() == 2 { // sixteen registers hold four rows by sixteen columns
			rows, widths = rows[1:], widths[1:]
		}
		for _, width := range widths {
			for _, r := range rows {
				printTile(p, m, r, width)
			}
		}
	}
}

func printTile(p *printer, m machine, rows, width int) {
	name := fmt.Sprintf("%sTile%dx%d", m.name, rows, width)
	p.function(name,
		fmt.Sprintf("sets (add = 0) or adds to (add = 1) %d rows by %d columns of C\n// the product of A and B; k is at least 1, strides are in bytes.", rows, width),
		[]argument{
			pointer("c"), integer("cRow"), pointer("a"), integer("aRow"), integer("aStep"),
			pointer("b"), integer("bRow"), integer("k"), integer("add"),
		}, nil)
	p.load("c", "DI", "cRow", "DX", "a", "SI", "aRow", "R8", "aStep", "R9", "b", "R10", "bRow", "R11", "k", "CX", "add", "AX")
	columns := width * 4 / m.bytes
	sum := func(row, column int) string { return m.register(row*columns + column) }
	right := func(column int) string { return m.register(rows*columns + column) }
	left := func(row int) string { return m.register(rows*columns + columns + row%2) }
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
	p.loop("CX", 0, nil, func() {
		for column := range columns {
			p.op("VMOVUPS %d(R10), %s", column*m.bytes, right(column))
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
