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
	"math"
	"os"
	"strings"
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

const header = "// Code generated by fulgurite/model/engine/native/kernel/generate; DO NOT EDIT.\n\n//go:build %s && !purego\n\n"

// printer collects functions in Go's assembler syntax (operands from source to
// destination) together with their Go declarations.
type printer struct {
	architecture string                     // as GOARCH names it
	lower        func(line string) []string // replaces each instruction; nil keeps it

	text      strings.Builder
	stubs     strings.Builder
	constants strings.Builder
	defined   map[string]bool
	arguments map[string]string // operands of the function being printed, by name
	labels    int
}

func newPrinter(architecture string) *printer {
	p := &printer{architecture: architecture, defined: map[string]bool{}}
	if architecture == "arm64" {
		p.lower = neonInstructions
	}
	return p
}

func (p *printer) assembly() string {
	return fmt.Sprintf(header, p.architecture) + "#include \"textflag.h\"\n\n" + p.constants.String() + p.text.String()
}

func (p *printer) declarations() string {
	return fmt.Sprintf(header, p.architecture) + "package kernel\n" + p.stubs.String()
}

// argument is a parameter or a result of a function.
type argument struct{ name, kind string }

func pointer(name string) argument { return argument{name, "*float32"} }
func integer(name string) argument { return argument{name, "int"} }
func number(name string) argument  { return argument{name, "float32"} }

// function begins a function. Arguments and results lie on the stack in the given order,
// each aligned to its size; the results begin at a multiple of 8.
func (p *printer) function(name, comment string, arguments, results []argument) {
	p.arguments = map[string]string{}
	offset := 0
	place := func(list []argument) string {
		var signature []string
		for _, a := range list {
			size := 8
			if a.kind == "float32" {
				size = 4
			}
			offset = (offset + size - 1) / size * size
			p.arguments[a.name] = fmt.Sprintf("%s+%d(FP)", a.name, offset)
			offset += size
			signature = append(signature, a.name+" "+a.kind)
		}
		return strings.Join(signature, ", ")
	}
	declaration := fmt.Sprintf("func %s(%s)", name, place(arguments))
	if len(results) > 0 {
		offset = (offset + 7) / 8 * 8
		declaration += " (" + place(results) + ")"
	}
	fmt.Fprintf(&p.stubs, "\n// %s %s\n//\n//go:noescape\n%s\n", name, comment, declaration)
	fmt.Fprintf(&p.text, "// %s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", declaration, name, offset)
}

// end prints the return to Go. Without VZEROUPPER each scalar SSE instruction that
// follows would wait for the upper halves of the registers.
func (p *printer) end() {
	p.op("VZEROUPPER")
	p.op("RET")
	p.text.WriteByte('\n')
}

// op prints one instruction.
func (p *printer) op(format string, values ...any) {
	lines := []string{fmt.Sprintf(format, values...)}
	if p.lower != nil {
		lines = p.lower(lines[0])
	}
	for _, line := range lines {
		p.text.WriteString("\t" + line + "\n")
	}
}

// argument returns the operand of an argument of the function being printed.
func (p *printer) argument(name string) string {
	operand, ok := p.arguments[name]
	if !ok {
		panic("generate: no argument " + name)
	}
	return operand
}

// load moves integer or pointer arguments into registers: name, register, …
func (p *printer) load(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		p.op("MOVQ %s, %s", p.argument(pairs[i]), pairs[i+1])
	}
}

// loop prints a loop that runs body counter times (at least once). Each time it advances
// the pointers by step bytes.
func (p *printer) loop(counter string, step int, pointers []string, body func()) {
	p.labels++
	label := fmt.Sprintf("loop%d", p.labels)
	p.text.WriteString(label + ":\n")
	body()
	for _, r := range pointers {
		p.op("ADDQ $%d, %s", step, r)
	}
	p.op("DECQ %s", counter)
	p.op("JNZ %s", label)
}

// constant returns a memory operand of sixteen copies of x.
func (p *printer) constant(name string, x float32) string {
	symbol := name + "<>"
	if !p.defined[name] {
		p.defined[name] = true
		bits := uint64(math.Float32bits(x))
		for i := range 8 {
			fmt.Fprintf(&p.constants, "DATA %s+%d(SB)/8, $0x%016x\n", symbol, 8*i, bits<<32|bits)
		}
		fmt.Fprintf(&p.constants, "GLOBL %s(SB), RODATA|NOPTR, $64\n\n", symbol)
	}
	return symbol + "+0(SB)"
}
