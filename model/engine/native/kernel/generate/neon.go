package main

import (
	"fmt"
	"regexp"
	"strings"
)

// The programs are written in the instructions of AVX. For arm64 each instruction is
// printed as one to three instructions of NEON that compute the same bits, four numbers
// at a time. Both round fused multiply-adds, divisions and square roots in the same way;
// a NaN may have another sign.

// neonSpare holds a memory operand or a mask for one instruction. An instruction that
// needs both also uses neonSpare2. take returns neither of them.
const (
	neonSpare  = "V31"
	neonSpare2 = "V30"
)

// neonPointers are the registers of integers and pointers. R8 to R13 keep their
// names.
var neonPointers = map[string]string{"AX": "R0", "BX": "R1", "CX": "R2", "DX": "R3", "SI": "R4", "DI": "R5"}

var (
	vectorName  = regexp.MustCompile(`^[XYZV](\d+)$`)
	inMemory    = regexp.MustCompile(`^(-?\d*)\((\w+)\)$`)
	withIndex   = regexp.MustCompile(`^\((\w+)\)\((\w+)\*1\)$`)
	neonBinary  = map[string]string{"VADDPS": "VFADD", "VSUBPS": "VFSUB", "VMULPS": "VFMUL", "VDIVPS": "VFDIV", "VMINPS": "VFMIN", "VPADDD": "VADD"}
	neonDoubles = map[string]string{"VADDPD": "VFADD", "VFMADD231PD": "VFMLA"}
	neonFused   = map[string]string{"VFMADD231PS": "VFMLA", "VFNMADD231PS": "VFMLS"}
	neonUnary   = map[string]string{"VSQRTPS": "VFSQRT", "VCVTPS2DQ": "VFCVTZS", "VCVTDQ2PS": "VSCVTF"}
	neonInteger = map[string]string{"MOVQ": "MOVD", "ADDQ": "ADD", "SHLQ": "LSL"}
)

// neonInstructions returns the NEON instructions for one of AVX.
func neonInstructions(line string) []string {
	name, rest, _ := strings.Cut(line, " ")
	var operands []string
	if rest != "" {
		operands = strings.Split(rest, ", ")
	}
	n := &neonLowering{}
	n.lower(name, operands)
	return n.lines
}

type neonLowering struct{ lines []string }

func (n *neonLowering) op(format string, values ...any) {
	n.lines = append(n.lines, fmt.Sprintf(format, values...))
}

func (n *neonLowering) lower(name string, o []string) {
	switch {
	case name == "VZEROUPPER": // arm64 has no such instruction and needs none
	case name == "RET":
		n.op("RET")
	case name == "DECQ":
		n.op("SUBS $1, %[1]s, %[1]s", neonOperand(o[0]))
	case name == "JNZ":
		n.op("BNE %s", o[0])
	case name == "LEAQ":
		both := withIndex.FindStringSubmatch(o[0])
		n.op("ADD %s, %s, %s", neonOperand(both[2]), neonOperand(both[1]), neonOperand(o[1]))
	case neonInteger[name] != "":
		n.op("%s %s, %s", neonInteger[name], neonOperand(o[0]), neonOperand(o[1]))
	case name == "VMOVUPS" || name == "VMOVAPS" || name == "VMOVUPD":
		n.move(o[0], o[1])
	case name == "VMOVSS":
		n.op("FMOVS %s, %s", scalar(neonVector(o[0])), memory(o[1]))
	case name == "VBROADCASTSS":
		n.broadcast(o[0], neonVector(o[1]))
	case name == "VXORPS":
		n.op("VEOR %[1]s.B16, %[1]s.B16, %[1]s.B16", neonVector(o[2]))
	case name == "VPSLLD":
		n.op("VSHL %s, %s.S4, %s.S4", o[0], neonVector(o[1]), neonVector(o[2]))
	case name == "VPERMILPS":
		n.permute(o[0], neonVector(o[1]), neonVector(o[2]))
	case name == "VROUNDPS": // to the nearest integer, halves to the even one
		n.op("VFRINTN %s.S4, %s.S4", neonVector(o[1]), neonVector(o[2]))
	case name == "VPMOVZXWD":
		d := neonVector(o[1])
		n.op("FMOVD %s, %s", memory(o[0]), scalar(d))
		n.op("VUXTL %[1]s.H4, %[1]s.S4", d)
	case name == "VPMOVSXBD":
		d := neonVector(o[1])
		n.op("FMOVS %s, %s", memory(o[0]), scalar(d))
		n.op("VSXTL %[1]s.B8, %[1]s.H8", d)
		n.op("VSXTL %[1]s.H4, %[1]s.S4", d)
	case name == "VCVTPS2PD":
		d := neonVector(o[1])
		n.op("FMOVD %s, %s", memory(o[0]), scalar(d))
		n.op("VFCVTL %[1]s.S2, %[1]s.D2", d)
	default:
		n.arithmetic(name, o)
	}
}

func (n *neonLowering) arithmetic(name string, o []string) {
	d := neonVector(o[len(o)-1])
	switch {
	case neonBinary[name] != "":
		n.op("%s %s.S4, %s.S4, %s.S4", neonBinary[name], n.value(o[0]), neonVector(o[1]), d)
	case neonUnary[name] != "":
		n.op("%s %s.S4, %s.S4", neonUnary[name], neonVector(o[0]), d)
	case neonFused[name] != "":
		n.op("%s %s.S4, %s.S4, %s.S4", neonFused[name], n.value(o[0]), neonVector(o[1]), d)
	case neonDoubles[name] != "":
		n.op("%s %s.D2, %s.D2, %s.D2", neonDoubles[name], neonVector(o[0]), neonVector(o[1]), d)
	case name == "VFMADD213PS": // d = o[1]·d + o[0]; VFMLA can only add a product to its destination
		n.move(o[0], neonSpare)
		n.op("VFMLA %s.S4, %s.S4, %s.S4", d, neonVector(o[1]), neonSpare)
		n.move(neonSpare, d)
	case name == "VMAXPS":
		n.larger(n.value(o[0]), neonVector(o[1]), d)
	default:
		panic("generate: no NEON for " + name)
	}
}

// permute swaps the halves of x or the numbers of each half.
func (n *neonLowering) permute(order, x, d string) {
	switch order {
	case "$0x4E":
		n.op("VEXT $8, %[1]s.B16, %[1]s.B16, %[2]s.B16", x, d)
	case "$0xB1":
		n.op("VREV64 %s.S4, %s.S4", x, d)
	default:
		panic("generate: no NEON for the order " + order)
	}
}

// larger sets d to b where b > x and to x otherwise, as VMAXPS does: the comparison is
// false for a NaN and for zeros of different signs. FMAX would return the positive zero.
func (n *neonLowering) larger(x, b, d string) {
	n.op("VFCMGT %s.S4, %s.S4, %s.S4", x, b, neonSpare2)
	switch d {
	case b:
		n.op("VBIF %s.B16, %s.B16, %s.B16", neonSpare2, x, d)
	case x:
		n.op("VBIT %s.B16, %s.B16, %s.B16", neonSpare2, b, d)
	default:
		panic("generate: VMAXPS to a third register")
	}
}

func (n *neonLowering) move(from, to string) {
	switch {
	case !isVector(from):
		n.op("FMOVQ %s, %s", memory(from), scalar(neonVector(to)))
	case !isVector(to):
		n.op("FMOVQ %s, %s", scalar(neonVector(from)), memory(to))
	default:
		n.op("VMOV %s.B16, %s.B16", neonVector(from), neonVector(to))
	}
}

func (n *neonLowering) broadcast(from, to string) {
	if isVector(from) {
		n.op("VDUP %s.S[0], %s.S4", neonVector(from), to)
		return
	}
	n.op("FMOVS %s, %s", memory(from), scalar(to))
	n.op("VDUP %[1]s.S[0], %[1]s.S4", to)
}

// value returns the register of an operand. It first loads an operand that lies in
// memory.
func (n *neonLowering) value(operand string) string {
	if isVector(operand) {
		return neonVector(operand)
	}
	n.move(operand, neonSpare)
	return neonSpare
}

func isVector(operand string) bool { return vectorName.MatchString(operand) }

func neonVector(name string) string {
	if !isVector(name) {
		panic("generate: no vector register " + name)
	}
	return "V" + name[1:]
}

// scalar returns the name that loads and stores have for a vector register.
func scalar(v string) string { return "F" + v[1:] }

func memory(operand string) string {
	if m := inMemory.FindStringSubmatch(operand); m != nil {
		return fmt.Sprintf("%s(%s)", m[1], neonOperand(m[2]))
	}
	return operand
}

// neonOperand returns the name that arm64 has for an integer operand: a register, an
// immediate or an argument.
func neonOperand(operand string) string {
	if r, ok := neonPointers[operand]; ok {
		return r
	}
	return operand
}

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
