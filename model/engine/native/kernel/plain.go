package kernel

import (
	"math"
	"unsafe"

	"github.com/fulgurite/fulgurite/model/half"
)

// These are the portable kernels. Each product is converted, float32(x*y), because
// otherwise a compiler may fuse it with the addition on some processors and not on
// others.

func plainSet() *Set {
	return &Set{
		name: "go", arithmetic: "rounded",
		narrow:          [4]tile{nil, plainTile4, nil, plainTile1},
		narrowBF16:      [4]tileBF16{nil, plainBF16Tile4, nil, plainBF16Tile1},
		narrowQ8:        [4]tileQ8{nil, plainQ8Tile4, nil, plainQ8Tile1},
		widenBF16:       plainWidenBF16,
		widenQ8:         plainWidenQ8,
		softmax:         plainSoftmax,
		logSumExp:       plainLogSumExp,
		logitsGradient:  plainLogitsGradient,
		softmaxBackward: plainSoftmaxBackward,
		norm:            plainNorm,
		normBackward:    plainNormBackward,
		swiGLU:          plainSwiGLU,
		swiGLUBackward:  plainSwiGLUBackward,
		rotate:          plainRotate,
		add:             plainAdd,
		sumSquares:      plainSumSquares,
		adamW:           plainAdamW,
	}
}

func plainTile4(c *float32, cRow int, a *float32, aRow, aStep int, b *float32, bRow, k, add int) {
	rows := unsafe.Slice(c, 3*cRow/4+Lanes)
	left := unsafe.Slice(a, 3*aRow/4+(k-1)*aStep/4+1)
	for i := range 4 {
		plainTile1(&rows[i*cRow/4], cRow, &left[i*aRow/4], aRow, aStep, b, bRow, k, add)
	}
}

// plainTile1 takes four steps of k at once, to load and store C less often.
func plainTile1(c *float32, _ int, a *float32, _, aStep int, b *float32, bRow, k, add int) {
	aStep, bRow = aStep/4, bRow/4 // in numbers from here on
	sum := (*[Lanes]float32)(unsafe.Slice(c, Lanes))
	left, right := unsafe.Slice(a, (k-1)*aStep+1), unsafe.Slice(b, (k-1)*bRow+Lanes)
	if add == 0 {
		clear(sum[:])
	}
	p := 0
	for ; p+4 <= k; p += 4 {
		a0, a1, a2, a3 := left[p*aStep], left[(p+1)*aStep], left[(p+2)*aStep], left[(p+3)*aStep]
		b0, b1 := (*[Lanes]float32)(right[p*bRow:]), (*[Lanes]float32)(right[(p+1)*bRow:])
		b2, b3 := (*[Lanes]float32)(right[(p+2)*bRow:]), (*[Lanes]float32)(right[(p+3)*bRow:])
		for j, x := range sum {
			x += float32(a0 * b0[j])
			x += float32(a1 * b1[j])
			x += float32(a2 * b2[j])
			sum[j] = x + float32(a3*b3[j])
		}
	}
	for ; p < k; p++ {
		ap, bp := left[p*aStep], (*[Lanes]float32)(right[p*bRow:])
		for j := range sum {
			sum[j] += float32(ap * bp[j])
		}
	}
}

// exp32 returns e^x for x clamped to [-87, 88], by the same polynomial as the assembly.
// For a NaN it returns a NaN.
func exp32(x float32) float32 {
	if x < -87 {
		x = -87
	}
	if x > 88 {
		x = 88
	}
	if x != x {
		return x
	}
	n := float32(math.RoundToEven(float64(float32(x * 1.44269504088896341))))
	x -= float32(n * 0.693359375)
	x += float32(n * 2.12194440e-4)
	y := float32(1.9875691500e-4*x) + 1.3981999507e-3
	y = float32(y*x) + 8.3334519073e-3
	y = float32(y*x) + 4.1665795894e-2
	y = float32(y*x) + 1.6666665459e-1
	y = float32(y*x) + 5.0000001201e-1
	y = float32(y*float32(x*x)) + (x + 1)
	return math.Float32frombits(math.Float32bits(y) + uint32(int32(n))<<23)
}

func largest(v []float32) float32 {
	most := v[0]
	for _, x := range v {
		if x > most {
			most = x
		}
	}
	return most
}

func plainSoftmax(x *float32, n int, scale float32) {
	v := unsafe.Slice(x, n*Lanes)
	most := largest(v)
	var sum float32
	for i := range v {
		v[i] = exp32(float32((v[i] - most) * scale))
		sum += v[i]
	}
	part := 1 / sum
	for i := range v {
		v[i] *= part
	}
}

func plainLogSumExp(x *float32, n int, scale float32) (most, sum, weighted float32) {
	v := unsafe.Slice(x, n*Lanes)
	most = largest(v)
	for i := range v {
		y := float32((v[i] - most) * scale)
		if y < -87 {
			y = -87
		}
		e := exp32(y)
		sum += e
		weighted += float32(y * e)
	}
	return most, sum, weighted
}

func plainLogitsGradient(x *float32, n int, scale, most, logSum, entropy, a, b float32) {
	v := unsafe.Slice(x, n*Lanes)
	for i := range v {
		l := float32((v[i]-most)*scale) - logSum
		if l < -87 {
			l = -87
		}
		v[i] = exp32(l) * (a + float32(b*(l+entropy)))
	}
}

func plainSoftmaxBackward(p, dp *float32, n int, scale float32) {
	probability, gradient := unsafe.Slice(p, n*Lanes), unsafe.Slice(dp, n*Lanes)
	var sum float32
	for i := range probability {
		sum += float32(probability[i] * gradient[i])
	}
	for i := range probability {
		gradient[i] = (gradient[i] - sum) * probability[i] * scale
	}
}

func plainAdd(sum, x *float32, n int) {
	s, v := unsafe.Slice(sum, n*Lanes), unsafe.Slice(x, n*Lanes)
	for i := range v {
		s[i] += v[i]
	}
}

func plainNorm(h, x, w, inverse *float32, rows, n int, part, epsilon float32) {
	width := n * Lanes
	out, in, weight, inverses := unsafe.Slice(h, rows*width), unsafe.Slice(x, rows*width), unsafe.Slice(w, width), unsafe.Slice(inverse, rows)
	for r := range inverses {
		xr, hr := in[r*width:(r+1)*width], out[r*width:(r+1)*width]
		var sum float32
		for _, v := range xr {
			sum += float32(v * v)
		}
		inverses[r] = 1 / float32(math.Sqrt(float64(float32(sum*part)+epsilon)))
		for i, v := range xr {
			hr[i] = v * inverses[r] * weight[i]
		}
	}
}

func plainNormBackward(dh, x, w, inverse, dx, dw *float32, rows, n int, part float32) {
	width := n * Lanes
	out, in, gradient := unsafe.Slice(dh, rows*width), unsafe.Slice(x, rows*width), unsafe.Slice(dx, rows*width)
	weight, weightGradient, inverses := unsafe.Slice(w, width), unsafe.Slice(dw, width), unsafe.Slice(inverse, rows)
	for r, inv := range inverses {
		hr, xr, gr := out[r*width:(r+1)*width], in[r*width:(r+1)*width], gradient[r*width:(r+1)*width]
		var sum float32
		for i := range xr {
			sum += float32(hr[i] * weight[i] * xr[i])
		}
		share := sum * inv * inv * inv * part
		for i := range xr {
			scaled := hr[i] * inv
			gr[i] += float32(scaled*weight[i]) - float32(share*xr[i])
			weightGradient[i] += float32(scaled * xr[i])
		}
	}
}

func plainSwiGLU(gu, act *float32, rows, n int) {
	width := n * Lanes
	in, out := unsafe.Slice(gu, 2*rows*width), unsafe.Slice(act, rows*width)
	for r := range rows {
		gate, up := in[2*r*width:(2*r+1)*width], in[(2*r+1)*width:(2*r+2)*width]
		for i, g := range gate {
			out[r*width+i] = g / (1 + exp32(-g)) * up[i]
		}
	}
}

func plainSwiGLUBackward(gu, dact *float32, rows, n int) {
	width := n * Lanes
	in, gradient := unsafe.Slice(gu, 2*rows*width), unsafe.Slice(dact, rows*width)
	for r := range rows {
		gate, up := in[2*r*width:(2*r+1)*width], in[(2*r+1)*width:(2*r+2)*width]
		for i, g := range gate {
			sigmoid, d := 1/(1+exp32(-g)), gradient[r*width+i]
			silu := g * sigmoid
			gate[i] = d * up[i] * (sigmoid + float32(silu*(1-sigmoid)))
			up[i] = d * silu
		}
	}
}

func plainRotate(x, cos, sin *float32, half, heads int, direction float32) {
	width := half * 8
	v, c, s := unsafe.Slice(x, 2*width*heads), unsafe.Slice(cos, width), unsafe.Slice(sin, width)
	for h := range heads {
		first, second := v[2*h*width:(2*h+1)*width], v[(2*h+1)*width:(2*h+2)*width]
		for i, a := range first {
			b, sine := second[i], s[i]*direction
			first[i] = float32(a*c[i]) - float32(b*sine)
			second[i] = float32(b*c[i]) + float32(a*sine)
		}
	}
}

func plainSumSquares(sums *float64, x *float32, n int) {
	s, v := (*[8]float64)(unsafe.Pointer(sums)), unsafe.Slice(x, n*Lanes)
	for i, f := range v {
		s[i%8] += float64(f) * float64(f) // exact, so fusing changes nothing
	}
}

func plainAdamW(p, gradient, m, v *float32, n int,
	rate, scale, decay, epsilon, beta1, rest1, correct1, beta2, rest2, correct2 float32,
) {
	weight, d := unsafe.Slice(p, n*Lanes), unsafe.Slice(gradient, n*Lanes)
	mean, variance := unsafe.Slice(m, n*Lanes), unsafe.Slice(v, n*Lanes)
	for i := range weight {
		g := d[i] * scale
		mean[i] = float32(mean[i]*beta1) + float32(g*rest1)
		variance[i] = float32(variance[i]*beta2) + float32(float32(g*g)*rest2)
		root := float32(math.Sqrt(float64(variance[i] * correct2)))
		step := mean[i]*correct1/(root+epsilon) + float32(weight[i]*decay)
		weight[i] -= float32(step * rate)
	}
}

// The products with narrow numbers widen some rows of them at a time and then use the
// tiles for float32.

func plainBF16Tile4(c *float32, cRow int, a *float32, aRow, aStep int, b *uint16, bRow, k, add int) {
	plainBF16(4, c, cRow, a, aRow, aStep, b, bRow, k, add)
}

func plainBF16Tile1(c *float32, cRow int, a *float32, aRow, aStep int, b *uint16, bRow, k, add int) {
	plainBF16(1, c, cRow, a, aRow, aStep, b, bRow, k, add)
}

func plainBF16(rows int, c *float32, cRow int, a *float32, aRow, aStep int, b *uint16, bRow, k, add int) {
	bRow /= 2 // in numbers from here on
	var wide [QuantBlock * Lanes]float32
	from := unsafe.Slice(b, (k-1)*bRow+Lanes)
	for p := 0; p < k; p += QuantBlock {
		depth := min(QuantBlock, k-p)
		for i := range depth {
			row := from[(p+i)*bRow:]
			for j := range Lanes {
				wide[i*Lanes+j] = half.FromBF16(row[j])
			}
		}
		plainTile(rows, c, cRow, (*float32)(unsafe.Add(unsafe.Pointer(a), p*aStep)), aRow, aStep, &wide[0], 4*Lanes, depth, add)
		add = 1
	}
}

func plainQ8Tile4(c *float32, cRow int, a *float32, aRow, aStep int, b *int8, bRow, k, add int, factors *float32) {
	plainQ8(4, c, cRow, a, aRow, aStep, b, bRow, k, add, factors)
}

func plainQ8Tile1(c *float32, cRow int, a *float32, aRow, aStep int, b *int8, bRow, k, add int, factors *float32) {
	plainQ8(1, c, cRow, a, aRow, aStep, b, bRow, k, add, factors)
}

func plainQ8(rows int, c *float32, cRow int, a *float32, aRow, aStep int, b *int8, bRow, k, add int, factors *float32) {
	var wide [QuantBlock * Lanes]float32
	for p := range k {
		from := unsafe.Slice((*int8)(unsafe.Add(unsafe.Pointer(b), p*QuantBlock*bRow)), (QuantBlock-1)*bRow+Lanes)
		factor := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(factors), 4*p*bRow)), Lanes)
		for i := range QuantBlock {
			for j, f := range factor {
				wide[i*Lanes+j] = float32(from[i*bRow+j]) * f
			}
		}
		plainTile(rows, c, cRow, (*float32)(unsafe.Add(unsafe.Pointer(a), p*QuantBlock*aStep)), aRow, aStep, &wide[0], 4*Lanes, QuantBlock, add)
		add = 1
	}
}

// plainTile calls plainTile4 or plainTile1.
func plainTile(rows int, c *float32, cRow int, a *float32, aRow, aStep int, b *float32, bRow, k, add int) {
	if rows == 4 {
		plainTile4(c, cRow, a, aRow, aStep, b, bRow, k, add)
		return
	}
	plainTile1(c, cRow, a, aRow, aStep, b, bRow, k, add)
}

func plainWidenBF16(to *float32, from *uint16, n int) {
	x := unsafe.Slice(to, n*Lanes)
	for i, b := range unsafe.Slice(from, n*Lanes) {
		x[i] = half.FromBF16(b)
	}
}

func plainWidenQ8(to *float32, from *int8, factors *float32, n int) {
	width := n * Lanes
	x, factor := unsafe.Slice(to, QuantBlock*width), unsafe.Slice(factors, width)
	for i, q := range unsafe.Slice(from, QuantBlock*width) {
		x[i] = float32(q) * factor[i%width]
	}
}
