package kernel

import (
	"math"
	"unsafe"
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
