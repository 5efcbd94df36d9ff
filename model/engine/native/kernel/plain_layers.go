package kernel

import (
	"math"
	"unsafe"
)

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
