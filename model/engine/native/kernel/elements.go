package kernel

// Hidden is the logit of what a soft-max must leave out, such as padding lanes: far below
// any logit, and far enough from the largest float32 to be scaled.
const Hidden = -1e30

// hide fills x[n:] with Hidden up to a multiple of Lanes and returns the number of
// vectors.
func hide(x []float32, n int) int {
	end := Pad(n)
	for i := n; i < end; i++ {
		x[i] = Hidden
	}
	return end / Lanes
}

// Softmax replaces x[:n] by the soft-max of scale·x[:n] and zeroes the rest of x. x has
// room for Pad(n) numbers.
func (s *Set) Softmax(x []float32, n int, scale float32) {
	s.softmax(&x[0], hide(x, n), scale)
	clear(x[n:])
}

// LogSumExp returns most = max x[:n] and, with y = scale·(x-most), the sums of
// e^y and of y·e^y. It overwrites x[n:Pad(n)].
func (s *Set) LogSumExp(x []float32, n int, scale float32) (most, sum, weighted float32) {
	return s.logSumExp(&x[0], hide(x, n), scale)
}

// LogitsGradient replaces each of the logits x[:n] by e^l·(a + b·(l+entropy)), where l =
// scale·(x-most) - logSum is its log-probability, and zeroes the rest of x. With a =
// -scale·∂L/∂logp and b = -scale·∂L/∂entropy the result is the gradient of the logits,
// except that the chosen token still lacks its own term scale·∂L/∂logp.
func (s *Set) LogitsGradient(x []float32, n int, scale, most, logSum, entropy, a, b float32) {
	s.logitsGradient(&x[0], hide(x, n), scale, most, logSum, entropy, a, b)
	clear(x[n:])
}

// SoftmaxBackward replaces dp[:n] by scale·p·(dp - Σ p·dp), the gradient of Softmax's
// input; n is a multiple of Lanes.
func (s *Set) SoftmaxBackward(p, dp []float32, n int, scale float32) {
	_, _ = p[n-1], dp[n-1]
	s.softmaxBackward(&p[0], &dp[0], n/Lanes, scale)
}

// Norm computes RMSNorm (Zhang and Sennrich, 2019, arXiv:1910.07467) of contiguous rows.
// Rows are as long as w; their first width numbers count and the rest are zero. It writes
// each row's 1/√(mean x² + epsilon) to inverse.
func (s *Set) Norm(h, x, w, inverse []float32, rows, width int, epsilon float32) {
	n := len(w)
	_, _, _ = h[rows*n-1], x[rows*n-1], inverse[rows-1]
	s.norm(&h[0], &x[0], &w[0], &inverse[0], rows, n/Lanes, 1/float32(width), epsilon)
}

// NormBackward adds to dx and dw the gradients of Norm's x and w.
func (s *Set) NormBackward(dh, x, w, inverse, dx, dw []float32, rows, width int) {
	n := len(w)
	_, _, _, _, _ = dh[rows*n-1], x[rows*n-1], dx[rows*n-1], inverse[rows-1], dw[n-1]
	s.normBackward(&dh[0], &x[0], &w[0], &inverse[0], &dx[0], &dw[0], rows, n/Lanes, 1/float32(width))
}

// SwiGLU sets act to silu(gate)·up (Shazeer, 2020, arXiv:2002.05202); a row of
// gateUp is width numbers of gate, then width of up.
func (s *Set) SwiGLU(gateUp, act []float32, rows, width int) {
	_, _ = gateUp[2*rows*width-1], act[rows*width-1]
	s.swiGLU(&gateUp[0], &act[0], rows, width/Lanes)
}

// SwiGLUBackward replaces gate and up by their gradients, given that of act.
func (s *Set) SwiGLUBackward(gateUp, dact []float32, rows, width int) {
	_, _ = gateUp[2*rows*width-1], dact[rows*width-1]
	s.swiGLUBackward(&gateUp[0], &dact[0], rows, width/Lanes)
}

// Rotate turns heads contiguous heads by the angles of one position (rotary
// embedding, Su et al., 2021, arXiv:2104.09864). Element i of a head is paired
// with i + half, half being len(cos), a multiple of 8.
func (s *Set) Rotate(x, cos, sin []float32, heads int) { s.rotateBy(x, cos, sin, heads, 1) }

// RotateBack undoes Rotate. It also computes the gradient of Rotate's input from that of
// its output.
func (s *Set) RotateBack(x, cos, sin []float32, heads int) { s.rotateBy(x, cos, sin, heads, -1) }

func (s *Set) rotateBy(x, cos, sin []float32, heads int, direction float32) {
	half := len(cos)
	_, _ = x[2*half*heads-1], sin[half-1]
	s.rotate(&x[0], &cos[0], &sin[0], half/8, heads, direction)
}

// Add adds x to sum, which has the same length.
func (s *Set) Add(sum, x []float32) {
	_ = sum[len(x)-1]
	s.add(&sum[0], &x[0], len(x)/Lanes)
}

// SumSquares returns Σx² in double precision.
func (s *Set) SumSquares(x []float32) float64 {
	var sums [8]float64
	s.sumSquares(&sums[0], &x[0], len(x)/Lanes)
	return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
}

// AdamW holds the numbers of one update, which are the same for all parameters.
type AdamW struct {
	Rate, Scale, Decay, Epsilon float32 // Scale multiplies the gradient first
	Beta1, Rest1, Correct1      float32 // Rest is 1-Beta, Correct is 1/(1-Beta^updates)
	Beta2, Rest2, Correct2      float32
}

// AdamW updates p and its moments; all four slices are equally long.
func (s *Set) AdamW(p, gradient, m, v []float32, u AdamW) {
	_, _, _ = gradient[len(p)-1], m[len(p)-1], v[len(p)-1]
	s.adamW(&p[0], &gradient[0], &m[0], &v[0], len(p)/Lanes,
		u.Rate, u.Scale, u.Decay, u.Epsilon, u.Beta1, u.Rest1, u.Correct1, u.Beta2, u.Rest2, u.Correct2)
}
