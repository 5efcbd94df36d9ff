package main

import "fmt"

// printNeonTiles prints the inner kernels of the matrix product for arm64. They compute
// what those of printTiles compute. Each row of A has its own pointer register, and B is
// loaded once for all rows.
func printNeonTiles(p *printer) {
	for _, f := range forms() {
		for _, rows := range []int{4, 2, 1} {
			printNeonTile(p, f, rows)
		}
	}
}

func printNeonTile(p *printer, f form, rows int) {
	const columns = 4 // registers of four numbers
	name := fmt.Sprintf("neon%sTile%dx16", f.name, rows)
	p.tile(f, name, rows, 4*columns)
	arguments := []string{"c", "R0", "cRow", "R1", "a", "R4", "aRow", "R2", "aStep", "R3", "b", "R8", "bRow", "R9", "k", "R10", "add", "R11"}
	for i := 0; i < len(arguments); i += 2 {
		p.op("MOVD %s, %s", p.argument(arguments[i]), arguments[i+1])
	}
	left := func(row int) string { return fmt.Sprintf("R%d", 4+row) } // R4 to R7
	for row := 1; row < rows; row++ {
		p.op("ADD R2, %s, %s", left(row-1), left(row))
	}
	sum := func(row int) []string {
		registers := make([]string, columns)
		for i := range registers {
			registers[i] = fmt.Sprintf("V%d", row*columns+i)
		}
		return registers
	}
	list := func(registers []string) string {
		return fmt.Sprintf("[%s.S4, %s.S4, %s.S4, %s.S4]", registers[0], registers[1], registers[2], registers[3])
	}
	for row := range rows {
		for _, r := range sum(row) {
			p.op("VEOR %[1]s.B16, %[1]s.B16, %[1]s.B16", r)
		}
	}
	p.op("CBZ R11, %s_product", name)
	p.op("MOVD R0, R12")
	for row := range rows {
		p.op("VLD1.P (R12)(R1), %s", list(sum(row)))
	}
	fmt.Fprintf(&p.text, "%s_product:\n", name)
	counter := "R10"
	switch f.bytes {
	case 2:
		p.op("VEOR V26.B16, V26.B16, V26.B16")
	case 1:
		p.op("MOVD %s, R12", p.argument("factors"))
		p.op("LSL $2, R9, R13")
		fmt.Fprintf(&p.text, "%s_block:\n", name)
		p.op("VLD1.P (R12)(R13), [V27.S4, V28.S4, V29.S4, V30.S4]")
		p.op("MOVD $%d, R14", blockDepth)
		counter = "R14"
	}
	fmt.Fprintf(&p.text, "%s_step:\n", name)
	p.widenNeon(f)
	for row := range rows {
		p.op("VLD1R.P (%s)(R3), [V%d.S4]", left(row), 20+row)
	}
	for row := range rows {
		for i, r := range sum(row) {
			p.op("VFMLA V%d.S4, V%d.S4, %s.S4", 16+i, 20+row, r)
		}
	}
	p.op("SUBS $1, %[1]s, %[1]s", counter)
	p.op("BNE %s_step", name)
	if f.scaled() {
		p.op("SUBS $1, R10, R10")
		p.op("BNE %s_block", name)
	}
	for row := range rows {
		p.op("VST1.P %s, (R0)(R1)", list(sum(row)))
	}
	p.op("RET")
	p.text.WriteByte('\n')
}

// widenNeon loads V16 to V19 with sixteen numbers of B. For bfloat16, V26 must be zero;
// for eight bits, V27 to V30 must hold the factors.
func (p *printer) widenNeon(f form) {
	switch f.bytes {
	case 4:
		p.op("VLD1.P (R8)(R9), [V16.S4, V17.S4, V18.S4, V19.S4]")
	case 2: // interleaved with zeros, each becomes the upper half of a float32
		p.op("VLD1.P (R8)(R9), [V24.H8, V25.H8]")
		for i := range 2 {
			p.op("VZIP1 V%d.H8, V26.H8, V%d.H8", 24+i, 16+2*i)
			p.op("VZIP2 V%d.H8, V26.H8, V%d.H8", 24+i, 17+2*i)
		}
	case 1:
		p.op("VLD1.P (R8)(R9), [V24.B16]")
		p.op("VSXTL V24.B8, V25.H8")
		p.op("VSXTL2 V24.B16, V26.H8")
		for i := range 2 {
			p.op("VSXTL V%d.H4, V%d.S4", 25+i, 16+2*i)
			p.op("VSXTL2 V%d.H8, V%d.S4", 25+i, 17+2*i)
		}
		for i := range 4 {
			p.op("VSCVTF V%[1]d.S4, V%[1]d.S4", 16+i)
			p.op("VFMUL V%[1]d.S4, V%[2]d.S4, V%[2]d.S4", 27+i, 16+i)
		}
	}
}
