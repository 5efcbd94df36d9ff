package main

import "fmt"

// machine is an instruction set, used as if it had vectors of sixteen float32. Such a
// vector takes one register, two or four.
type machine struct {
	name      string // prefix of the functions
	file      string // letter of its registers
	bytes     int    // of one register
	registers int    // that programs may use
}

func avxMachines() []machine {
	return []machine{{"avx512", "Z", 64, 16}, {"avx2", "Y", 32, 16}}
}

// neonMachine reserves V30 and V31 for what an instruction of AVX needs in addition to
// its operands.
func neonMachine() machine { return machine{"neon", "V", 16, 30} }

// parts returns the number of registers that hold sixteen numbers.
func (m machine) parts() int { return 64 / m.bytes }

func (m machine) register(i int) string { return fmt.Sprintf("%s%d", m.file, i) }

// each calls f for each register of a vector with its offset in memory.
func (m machine) each(f func(part, offset int)) {
	for part := range m.parts() {
		f(part, part*m.bytes)
	}
}

// program prints one function for one machine. Registers 0 to 5 hold intermediate
// numbers; take provides the registers for accumulators and for numbers that are equal in
// all lanes.
type program struct {
	*printer
	machine
	next int
	held map[string]uniform // constants that are in registers
}

type (
	// uniform is a register whose lanes are all equal.
	uniform string
	// vector holds sixteen numbers from one iteration to the next.
	vector []string
)

func (g *program) take() string {
	if g.next >= g.registers {
		panic("generate: out of registers")
	}
	g.next++
	return g.register(g.next - 1)
}

// broadcast takes a register and fills it with an operand of four bytes in memory.
func (g *program) broadcast(operand string) uniform {
	r := g.take()
	g.op("VBROADCASTSS %s, %s", operand, r)
	return uniform(r)
}

func (g *program) given(name string) uniform { return g.broadcast(g.argument(name)) }

func (g *program) fixed(name string, x float32) uniform { return g.broadcast(g.constant(name, x)) }

// hold keeps a constant in a register for the whole program.
func (g *program) hold(name string, x float32) {
	if g.held == nil {
		g.held = map[string]uniform{}
	}
	g.held[name] = g.fixed(name, x)
}

// constant returns an operand whose numbers are all x.
func (g *program) constant(name string, x float32) string {
	if r, ok := g.held[name]; ok {
		return string(r)
	}
	return g.printer.constant(name, x)
}

func (g *program) vector() vector {
	v := make(vector, g.parts())
	for i := range v {
		v[i] = g.take()
	}
	return v
}

func (g *program) zero(registers ...string) {
	for _, r := range registers {
		instruction := "VXORPS"
		if r[0] == 'Z' {
			instruction = "VPXORD"
		}
		g.op("%s %s, %s, %s", instruction, r, r, r)
	}
}

// fold combines the lanes of v into one: 8 apart, then 4, 2 and 1. The result is in every
// lane of the X register that is the start of v's first register; fold returns its name.
// It overwrites register 0.
func (g *program) fold(instruction string, v vector) string {
	n := v[0][1:]
	switch g.parts() {
	case 1:
		g.op("VEXTRACTF64X4 $1, %s, Y0", v[0])
		g.op("%s Y0, Y%s, Y%s", instruction, n, n)
	case 2:
		g.op("%s %s, %s, %s", instruction, v[1], v[0], v[0])
	case 4:
		g.op("%s %s, %s, %s", instruction, v[2], v[0], v[0])
		g.op("%s %s, %s, %s", instruction, v[3], v[1], v[1])
		g.op("%s %s, %s, %s", instruction, v[1], v[0], v[0])
	}
	if g.parts() < 4 {
		g.op("VEXTRACTF128 $1, Y%s, X0", n)
		g.op("%s X0, X%s, X%s", instruction, n, n)
	}
	for _, order := range []string{"$0x4E", "$0xB1"} {
		g.op("VPERMILPS %s, X%s, X0", order, n)
		g.op("%s X0, X%s, X%s", instruction, n, n)
	}
	return "X" + n
}

// spread copies lane 0 of an X register to all lanes of the vector register
// that it is the start of.
func (g *program) spread(x string) uniform {
	r := g.file + x[1:]
	g.op("VBROADCASTSS %s, %s", x, r)
	return uniform(r)
}
