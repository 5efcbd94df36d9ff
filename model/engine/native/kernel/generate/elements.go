package main

import "fmt"

// printElements prints the element-wise programs for each of machines. A count is
// always in vectors of sixteen numbers and at least 1.
func printElements(p *printer, machines []machine) {
	for _, m := range machines {
		for _, print := range []func(*program){
			printSoftmax, printLogSumExp, printLogitsGradient, printSoftmaxBackward,
			printNorm, printNormBackward, printSwiGLU, printSwiGLUBackward,
			printRotate, printAdd, printSumSquares, printAdamW, printWidenBF16, printWidenQ8,
		} {
			print(&program{printer: p, machine: m, next: 6})
		}
	}
}

// exponent holds the limits to which exp clamps. exp prints register 0 = e^register 0 and
// overwrites registers 1 to 3. It computes a power of two times a polynomial of degree 7
// on [-ln2/2, ln2/2] (Moshier's Cephes, expf). Results are clamped to e^-87 and e^88, so
// they are normal numbers and one can add to their exponent field. A NaN stays a NaN,
// because MAX and MIN return their first operand here if either is a NaN.
type exponent struct{ low, high uniform }

func (g *program) exponent() exponent {
	if g.registers > 16 { // on such a machine an operand in memory needs a load first
		g.hold("expLog2E", log2E)
		g.hold("expLn2High", ln2High)
		g.hold("expLn2Low", ln2Low)
		for i, c := range coefficients() {
			g.hold(fmt.Sprintf("exp%d", 7-i), c)
		}
	}
	return exponent{g.fixed("expLow", -87), g.fixed("expHigh", 88)}
}

// ln2High and ln2Low add up to -ln 2; ln2High has few bits.
const (
	log2E   = 1.44269504088896341
	ln2High = -0.693359375
	ln2Low  = 2.12194440e-4
)

// coefficients returns the coefficients of the polynomial, that of x⁷ first.
func coefficients() []float32 {
	return []float32{
		1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
	}
}

func (g *program) clampLow(e exponent, r string) { g.op("VMAXPS %s, %s, %s", r, e.low, r) }

func (g *program) exp(e exponent) {
	x, n, y, square := g.register(0), g.register(1), g.register(2), g.register(3)
	g.clampLow(e, x)
	g.op("VMINPS %s, %s, %s", x, e.high, x)
	g.op("VMULPS %s, %s, %s", g.constant("expLog2E", log2E), x, n)
	round := "VRNDSCALEPS"
	if g.parts() > 1 {
		round = "VROUNDPS"
	}
	g.op("%s $0, %s, %s", round, n, n)
	// x - n·ln2
	g.op("VFMADD231PS %s, %s, %s", g.constant("expLn2High", ln2High), n, x)
	g.op("VFMADD231PS %s, %s, %s", g.constant("expLn2Low", ln2Low), n, x)
	for i, c := range coefficients() {
		operand := g.constant(fmt.Sprintf("exp%d", 7-i), c)
		if i == 0 {
			g.op("VMOVUPS %s, %s", operand, y)
			continue
		}
		g.op("VFMADD213PS %s, %s, %s", operand, x, y)
	}
	g.op("VMULPS %s, %s, %s", x, x, square)
	g.op("VADDPS %s, %s, %s", g.constant("one", 1), x, x)
	g.op("VFMADD213PS %s, %s, %s", x, square, y)
	g.op("VCVTPS2DQ %s, %s", n, n)
	g.op("VPSLLD $23, %s, %s", n, n)
	g.op("VPADDD %s, %s, %s", n, y, x)
}

func (g *program) begin(name, comment string, arguments, results []argument) {
	g.function(g.machine.name+name, comment, arguments, results)
}

// vectors prints a loop over count vectors; body is called for each register of a vector.
func (g *program) vectors(count string, pointers []string, body func(part, offset int)) {
	g.loop(count, 64, pointers, func() { g.each(body) })
}

// maximum prints the search for the largest element of the count vectors at SI. It
// advances SI.
func (g *program) maximum(count string) uniform {
	most := g.vector()
	g.each(func(part, offset int) { g.op("VMOVUPS %d(SI), %s", offset, most[part]) })
	g.vectors(count, []string{"SI"}, func(part, offset int) {
		g.op("VMAXPS %d(SI), %s, %s", offset, most[part], most[part])
	})
	return g.spread(g.fold("VMAXPS", most))
}

func printSoftmax(g *program) {
	g.begin("Softmax", "replaces x by the soft-max of scale·x.",
		[]argument{pointer("x"), integer("n"), number("scale")}, nil)
	g.load("x", "DI", "n", "CX")
	e, scale, sum := g.exponent(), g.given("scale"), g.vector()
	x := g.register(0)
	g.op("MOVQ DI, SI")
	g.op("MOVQ CX, DX")
	most := g.maximum("DX")
	g.zero(sum...)
	g.op("MOVQ DI, SI")
	g.op("MOVQ CX, DX")
	g.vectors("DX", []string{"SI"}, func(part, offset int) {
		g.op("VMOVUPS %d(SI), %s", offset, x)
		g.op("VSUBPS %s, %s, %s", most, x, x)
		g.op("VMULPS %s, %s, %s", scale, x, x)
		g.exp(e)
		g.op("VMOVUPS %s, %d(SI)", x, offset)
		g.op("VADDPS %s, %s, %s", x, sum[part], sum[part])
	})
	total := g.spread(g.fold("VADDPS", sum))
	g.op("VMOVUPS %s, %s", g.constant("one", 1), x)
	g.op("VDIVPS %s, %s, %s", total, x, total)
	g.vectors("CX", []string{"DI"}, func(_, offset int) {
		g.op("VMULPS %d(DI), %s, %s", offset, total, x)
		g.op("VMOVUPS %s, %d(DI)", x, offset)
	})
	g.end()
}

func printLogSumExp(g *program) {
	g.begin("LogSumExp", "returns the largest x and, with y = scale·(x - most) and at least -87,\n// the sums of e^y and of y·e^y.",
		[]argument{pointer("x"), integer("n"), number("scale")},
		[]argument{number("most"), number("sum"), number("weighted")})
	g.load("x", "SI", "n", "CX")
	e, scale, sum, weighted := g.exponent(), g.given("scale"), g.vector(), g.vector()
	x, y := g.register(0), g.register(4)
	g.op("MOVQ SI, DI")
	g.op("MOVQ CX, DX")
	most := g.maximum("DX")
	g.op("VMOVSS X%s, %s", most[1:], g.argument("most"))
	g.zero(append(append([]string{}, sum...), weighted...)...)
	g.vectors("CX", []string{"DI"}, func(part, offset int) {
		g.op("VMOVUPS %d(DI), %s", offset, x)
		g.op("VSUBPS %s, %s, %s", most, x, x)
		g.op("VMULPS %s, %s, %s", scale, x, x)
		g.clampLow(e, x)
		g.op("VMOVAPS %s, %s", x, y)
		g.exp(e)
		g.op("VADDPS %s, %s, %s", x, sum[part], sum[part])
		g.op("VFMADD231PS %s, %s, %s", x, y, weighted[part])
	})
	g.op("VMOVSS %s, %s", g.fold("VADDPS", sum), g.argument("sum"))
	g.op("VMOVSS %s, %s", g.fold("VADDPS", weighted), g.argument("weighted"))
	g.end()
}

func printLogitsGradient(g *program) {
	g.begin("LogitsGradient", "replaces each logit x by e^l·(a + b·(l + entropy)),\n// where l = scale·(x - most) - logSum is its log-probability.",
		[]argument{
			pointer("x"), integer("n"), number("scale"), number("most"), number("logSum"),
			number("entropy"), number("a"), number("b"),
		}, nil)
	g.load("x", "DI", "n", "CX")
	e, scale, most, logSum := g.exponent(), g.given("scale"), g.given("most"), g.given("logSum")
	entropy, a, b := g.given("entropy"), g.given("a"), g.given("b")
	x, l := g.register(0), g.register(4)
	g.vectors("CX", []string{"DI"}, func(_, offset int) {
		g.op("VMOVUPS %d(DI), %s", offset, x)
		g.op("VSUBPS %s, %s, %s", most, x, x)
		g.op("VMULPS %s, %s, %s", scale, x, x)
		g.op("VSUBPS %s, %s, %s", logSum, x, x)
		g.clampLow(e, x)
		g.op("VADDPS %s, %s, %s", entropy, x, l)
		g.op("VFMADD213PS %s, %s, %s", a, b, l)
		g.exp(e)
		g.op("VMULPS %s, %s, %s", l, x, x)
		g.op("VMOVUPS %s, %d(DI)", x, offset)
	})
	g.end()
}

func printSoftmaxBackward(g *program) {
	g.begin("SoftmaxBackward", "replaces dp by scale·p·(dp - Σ p·dp).",
		[]argument{pointer("p"), pointer("dp"), integer("n"), number("scale")}, nil)
	g.load("p", "SI", "dp", "DI", "n", "CX")
	scale, sum := g.given("scale"), g.vector()
	x := g.register(0)
	g.op("MOVQ SI, R8")
	g.op("MOVQ DI, R9")
	g.op("MOVQ CX, DX")
	g.zero(sum...)
	g.vectors("DX", []string{"R8", "R9"}, func(part, offset int) {
		g.op("VMOVUPS %d(R8), %s", offset, x)
		g.op("VFMADD231PS %d(R9), %s, %s", offset, x, sum[part])
	})
	total := g.spread(g.fold("VADDPS", sum))
	g.vectors("CX", []string{"SI", "DI"}, func(_, offset int) {
		g.op("VMOVUPS %d(DI), %s", offset, x)
		g.op("VSUBPS %s, %s, %s", total, x, x)
		g.op("VMULPS %d(SI), %s, %s", offset, x, x)
		g.op("VMULPS %s, %s, %s", scale, x, x)
		g.op("VMOVUPS %s, %d(DI)", x, offset)
	})
	g.end()
}

func printSwiGLU(g *program) {
	g.begin("SwiGLU", "sets act to gate·sigmoid(gate)·up; a row of gu is n vectors of gate, then n of up.",
		[]argument{pointer("gu"), pointer("act"), integer("rows"), integer("n")}, nil)
	g.load("gu", "SI", "act", "DI", "rows", "BX", "n", "CX")
	e := g.exponent()
	x, gate := g.register(0), g.register(4)
	g.op("MOVQ CX, R8")
	g.op("SHLQ $6, R8")
	g.loop("BX", 0, nil, func() {
		g.op("MOVQ CX, DX")
		g.op("LEAQ (SI)(R8*1), R9")
		g.vectors("DX", []string{"SI", "DI", "R9"}, func(_, offset int) {
			g.op("VMOVUPS %d(SI), %s", offset, gate)
			g.zero(x)
			g.op("VSUBPS %s, %s, %s", gate, x, x)
			g.exp(e)
			g.op("VADDPS %s, %s, %s", g.constant("one", 1), x, x)
			g.op("VDIVPS %s, %s, %s", x, gate, x)
			g.op("VMULPS %d(R9), %s, %s", offset, x, x)
			g.op("VMOVUPS %s, %d(DI)", x, offset)
		})
		g.op("MOVQ R9, SI")
	})
	g.end()
}

func printSwiGLUBackward(g *program) {
	g.begin("SwiGLUBackward", "replaces gate and up in gu by their gradients, given dact.",
		[]argument{pointer("gu"), pointer("dact"), integer("rows"), integer("n")}, nil)
	g.load("gu", "SI", "dact", "DI", "rows", "BX", "n", "CX")
	e := g.exponent()
	sigmoid, silu, rest, gate := g.register(0), g.register(1), g.register(2), g.register(4)
	g.op("MOVQ CX, R8")
	g.op("SHLQ $6, R8")
	g.loop("BX", 0, nil, func() {
		g.op("MOVQ CX, DX")
		g.op("LEAQ (SI)(R8*1), R9")
		g.vectors("DX", []string{"SI", "DI", "R9"}, func(_, offset int) {
			g.op("VMOVUPS %d(SI), %s", offset, gate)
			g.zero(sigmoid)
			g.op("VSUBPS %s, %s, %s", gate, sigmoid, sigmoid)
			g.exp(e)
			one := g.register(5)
			g.op("VMOVUPS %s, %s", g.constant("one", 1), one)
			g.op("VADDPS %s, %s, %s", one, sigmoid, sigmoid)
			g.op("VDIVPS %s, %s, %s", sigmoid, one, sigmoid)
			g.op("VMULPS %s, %s, %s", sigmoid, gate, silu)
			g.op("VSUBPS %s, %s, %s", sigmoid, one, rest)
			g.op("VFMADD231PS %s, %s, %s", rest, silu, sigmoid) // the derivative of silu
			g.op("VMOVUPS %d(DI), %s", offset, gate)
			g.op("VMULPS %d(R9), %s, %s", offset, gate, rest)
			g.op("VMULPS %s, %s, %s", sigmoid, rest, rest)
			g.op("VMOVUPS %s, %d(SI)", rest, offset)
			g.op("VMULPS %s, %s, %s", silu, gate, gate)
			g.op("VMOVUPS %s, %d(R9)", gate, offset)
		})
		g.op("MOVQ R9, SI")
	})
	g.end()
}

func printAdd(g *program) {
	g.begin("Add", "adds x to sum.", []argument{pointer("sum"), pointer("x"), integer("n")}, nil)
	g.load("sum", "DI", "x", "SI", "n", "CX")
	x := g.register(0)
	g.vectors("CX", []string{"DI", "SI"}, func(_, offset int) {
		g.op("VMOVUPS %d(DI), %s", offset, x)
		g.op("VADDPS %d(SI), %s, %s", offset, x, x)
		g.op("VMOVUPS %s, %d(DI)", x, offset)
	})
	g.end()
}
