package main

import "fmt"

func printNorm(g *program) {
	g.begin("Norm", "sets h to x·inverse·w row by row, where inverse is 1/√(Σx²·part + epsilon).",
		[]argument{
			pointer("h"), pointer("x"), pointer("w"), pointer("inverse"), integer("rows"), integer("n"),
			number("part"), number("epsilon"),
		}, nil)
	g.load("h", "DI", "x", "SI", "inverse", "R9", "rows", "BX")
	part, epsilon, one, sum := g.given("part"), g.given("epsilon"), g.fixed("one", 1), g.vector()
	x := g.register(0)
	g.loop("BX", 4, []string{"R9"}, func() {
		g.zero(sum...)
		g.op("MOVQ SI, R8")
		g.load("n", "DX")
		g.vectors("DX", []string{"R8"}, func(part, offset int) {
			g.op("VMOVUPS %d(R8), %s", offset, x)
			g.op("VFMADD231PS %s, %s, %s", x, x, sum[part])
		})
		total := g.fold("VADDPS", sum)
		g.op("VFMADD213PS X%s, X%s, %s", epsilon[1:], part[1:], total)
		g.op("VSQRTPS %s, %s", total, total)
		g.op("VDIVPS %s, X%s, %s", total, one[1:], total)
		g.op("VMOVSS %s, (R9)", total)
		inverse := g.spread(total)
		g.load("n", "DX", "w", "R10")
		g.vectors("DX", []string{"SI", "DI", "R10"}, func(_, offset int) {
			g.op("VMULPS %d(SI), %s, %s", offset, inverse, x)
			g.op("VMULPS %d(R10), %s, %s", offset, x, x)
			g.op("VMOVUPS %s, %d(DI)", x, offset)
		})
	})
	g.end()
}

func printNormBackward(g *program) {
	g.begin("NormBackward", "adds to dx and dw the gradients of x and w, given dh and what Norm saw.",
		[]argument{
			pointer("dh"), pointer("x"), pointer("w"), pointer("inverse"), pointer("dx"), pointer("dw"),
			integer("rows"), integer("n"), number("part"),
		}, nil)
	g.load("dh", "AX", "x", "SI", "inverse", "R9", "dx", "DI", "rows", "BX")
	part, inverse, sum := g.given("part"), uniform(g.take()), g.vector()
	dh, x, t := g.register(0), g.register(1), g.register(2)
	g.loop("BX", 4, []string{"R9"}, func() {
		g.zero(sum...)
		g.op("MOVQ SI, R8")
		g.op("MOVQ AX, R11")
		g.load("w", "R10", "n", "DX")
		g.vectors("DX", []string{"R8", "R11", "R10"}, func(part, offset int) {
			g.op("VMOVUPS %d(R11), %s", offset, dh)
			g.op("VMULPS %d(R10), %s, %s", offset, dh, dh)
			g.op("VFMADD231PS %d(R8), %s, %s", offset, dh, sum[part])
		})
		// share is the factor of x in what the norm subtracts: Σ(dh·w·x)·inverse³/width.
		share := g.spread(g.fold("VADDPS", sum))
		g.op("VBROADCASTSS (R9), %s", inverse)
		for _, factor := range []uniform{inverse, inverse, inverse, part} {
			g.op("VMULPS %s, %s, %s", factor, share, share)
		}
		g.load("w", "R10", "dw", "R11", "n", "DX")
		g.vectors("DX", []string{"AX", "SI", "DI", "R10", "R11"}, func(_, offset int) {
			g.op("VMOVUPS %d(AX), %s", offset, dh)
			g.op("VMOVUPS %d(SI), %s", offset, x)
			g.op("VMULPS %s, %s, %s", inverse, dh, dh)
			g.op("VMULPS %d(R10), %s, %s", offset, dh, t)
			g.op("VFNMADD231PS %s, %s, %s", share, x, t)
			g.op("VADDPS %d(DI), %s, %s", offset, t, t)
			g.op("VMOVUPS %s, %d(DI)", t, offset)
			g.op("VMULPS %s, %s, %s", dh, x, x)
			g.op("VADDPS %d(R11), %s, %s", offset, x, x)
			g.op("VMOVUPS %s, %d(R11)", x, offset)
		})
	})
	g.end()
}

// printRotate works on vectors of eight, half the width of the others, because
// heads of sixteen are usual in small models; both machines of amd64 print the
// same.
func printRotate(g *program) {
	g.begin("Rotate", "turns heads of 2·half vectors of eight by the angle whose cosines and sines are\n// given: forwards with direction 1, back with -1.",
		[]argument{
			pointer("x"), pointer("cos"), pointer("sin"), integer("half"), integer("heads"), number("direction"),
		}, nil)
	g.load("x", "DI", "half", "CX", "heads", "BX")
	g.op("MOVQ CX, R8")
	g.op("SHLQ $5, R8")
	file, bytes := "Y", 32
	if g.bytes < bytes {
		file, bytes = g.file, g.bytes
	}
	r := func(i int) string { return fmt.Sprintf("%s%d", file, i) }
	g.op("VBROADCASTSS %s, %s", g.argument("direction"), r(7))
	g.loop("BX", 0, nil, func() {
		g.op("MOVQ CX, DX")
		g.op("LEAQ (DI)(R8*1), R10")
		g.load("cos", "SI", "sin", "R9")
		g.loop("DX", 32, []string{"DI", "R10", "SI", "R9"}, func() {
			for offset := 0; offset < 32; offset += bytes {
				g.op("VMOVUPS %d(DI), %s", offset, r(0))
				g.op("VMOVUPS %d(R10), %s", offset, r(1))
				g.op("VMOVUPS %d(SI), %s", offset, r(2))
				g.op("VMULPS %d(R9), %s, %s", offset, r(7), r(3))
				g.op("VMULPS %s, %s, %s", r(2), r(0), r(4))
				g.op("VFNMADD231PS %s, %s, %s", r(3), r(1), r(4))
				g.op("VMOVUPS %s, %d(DI)", r(4), offset)
				g.op("VMULPS %s, %s, %s", r(2), r(1), r(4))
				g.op("VFMADD231PS %s, %s, %s", r(3), r(0), r(4))
				g.op("VMOVUPS %s, %d(R10)", r(4), offset)
			}
		})
		g.op("MOVQ R10, DI")
	})
	g.end()
}

// printSumSquares adds in double precision, so that the norm of a gradient is
// finite whenever the gradient is.
func printSumSquares(g *program) {
	g.begin("SumSquares", "sets eight sums: those of the squares of every eighth number of x.",
		[]argument{{"sums", "*float64"}, pointer("x"), integer("n")}, nil)
	g.load("sums", "DI", "x", "SI", "n", "CX")
	sums := make([]string, 2*g.parts()) // each holds half as many numbers, in double precision
	for i := range sums {
		sums[i] = g.take()
	}
	g.zero(sums...)
	x := g.register(0)
	g.loop("CX", 64, []string{"SI"}, func() {
		for i, sum := range sums {
			g.op("VCVTPS2PD %d(SI), %s", i*g.bytes/2, x)
			g.op("VFMADD231PD %s, %s, %s", x, x, sum)
		}
	})
	for i := range g.parts() {
		g.op("VADDPD %s, %s, %s", sums[g.parts()+i], sums[i], sums[i])
		g.op("VMOVUPD %s, %d(DI)", sums[i], i*g.bytes)
	}
	g.end()
}

func printAdamW(g *program) {
	g.begin("AdamW", "makes one update of p and of its moments m and v; correct1 and correct2 are\n// 1/(1-beta^updates), rest1 and rest2 are 1-beta.",
		[]argument{
			pointer("p"), pointer("gradient"), pointer("m"), pointer("v"), integer("n"),
			number("rate"), number("scale"), number("decay"), number("epsilon"), number("beta1"), number("rest1"),
			number("correct1"), number("beta2"), number("rest2"), number("correct2"),
		}, nil)
	g.load("p", "DI", "gradient", "SI", "m", "R8", "v", "R9", "n", "CX")
	rate, scale, decay, epsilon := g.given("rate"), g.given("scale"), g.given("decay"), g.given("epsilon")
	beta1, rest1, correct1 := g.given("beta1"), g.given("rest1"), g.given("correct1")
	beta2, rest2, correct2 := g.given("beta2"), g.given("rest2"), g.given("correct2")
	x, m, v, p := g.register(0), g.register(1), g.register(2), g.register(3)
	g.vectors("CX", []string{"DI", "SI", "R8", "R9"}, func(_, offset int) {
		g.op("VMULPS %d(SI), %s, %s", offset, scale, x)
		g.op("VMULPS %d(R8), %s, %s", offset, beta1, m)
		g.op("VFMADD231PS %s, %s, %s", x, rest1, m)
		g.op("VMOVUPS %s, %d(R8)", m, offset)
		g.op("VMULPS %s, %s, %s", x, x, x)
		g.op("VMULPS %d(R9), %s, %s", offset, beta2, v)
		g.op("VFMADD231PS %s, %s, %s", x, rest2, v)
		g.op("VMOVUPS %s, %d(R9)", v, offset)
		g.op("VMULPS %s, %s, %s", correct2, v, v)
		g.op("VSQRTPS %s, %s", v, v)
		g.op("VADDPS %s, %s, %s", epsilon, v, v)
		g.op("VMULPS %s, %s, %s", correct1, m, m)
		g.op("VDIVPS %s, %s, %s", v, m, m)
		g.op("VMOVUPS %d(DI), %s", offset, p)
		g.op("VFMADD231PS %s, %s, %s", decay, p, m)
		g.op("VFNMADD231PS %s, %s, %s", rate, m, p)
		g.op("VMOVUPS %s, %d(DI)", p, offset)
	})
	g.end()
}
