package kernel

import (
	"errors"
	"fmt"
	"strings"
)

//go:generate go run ./generate

// fused is the arithmetic of the assembly: products are added without rounding,
// rows are summed in sixteen lanes that are folded 8, 4, 2 and 1 apart.
const fused = "fused16"

// Lanes is the number of float32 in a vector; lengths are multiples of it.
const Lanes = 16

// ErrUnknown is wrapped by Named for a set that this processor or build lacks.
var ErrUnknown = errors.New("unknown kernel set")

// tile multiplies a fixed number of rows by a fixed number of columns; strides
// are in bytes, add is 0 or 1.
type tile func(c *float32, cRow int, a *float32, aRow, aStep int, b *float32, bRow, k, add int)

// Tiles whose B has narrow numbers: bfloat16, or eight bits with factors, where k counts
// blocks of QuantBlock.
type (
	tileBF16 func(c *float32, cRow int, a *float32, aRow, aStep int, b *uint16, bRow, k, add int)
	tileQ8   func(c *float32, cRow int, a *float32, aRow, aStep int, b *int8, bRow, k, add int, factors *float32)
)

// tileRows are the heights of the tiles in wide and narrow.
var tileRows = [4]int{8, 4, 2, 1}

// Set is one implementation of the kernels. Its methods may be called at once
// from several goroutines on different memory.
type Set struct {
	name       string
	arithmetic string

	wide   [4]tile // 32 columns; nil if the set has no such tile
	narrow [4]tile // 16 columns
	// Tiles of the same sizes for other forms of B.
	wideBF16, narrowBF16 [4]tileBF16
	wideQ8, narrowQ8     [4]tileQ8

	widenBF16       func(to *float32, from *uint16, n int)
	widenQ8         func(to *float32, from *int8, factors *float32, n int)
	transpose       func(to *float32, toRow int, from *float32, fromRow, blocks int) // nil if the set has none
	softmax         func(x *float32, n int, scale float32)
	logSumExp       func(x *float32, n int, scale float32) (most, sum, weighted float32)
	logitsGradient  func(x *float32, n int, scale, most, logSum, entropy, a, b float32)
	softmaxBackward func(p, dp *float32, n int, scale float32)
	norm            func(h, x, w, inverse *float32, rows, n int, part, epsilon float32)
	normBackward    func(dh, x, w, inverse, dx, dw *float32, rows, n int, part float32)
	swiGLU          func(gu, act *float32, rows, n int)
	swiGLUBackward  func(gu, dact *float32, rows, n int)
	rotate          func(x, cos, sin *float32, half, heads int, direction float32)
	add             func(sum, x *float32, n int)
	sumSquares      func(sums *float64, x *float32, n int)
	adamW           func(p, gradient, m, v *float32, n int,
		rate, scale, decay, epsilon, beta1, rest1, correct1, beta2, rest2, correct2 float32)
}

// Sets returns the sets that run on this processor, the fastest first. The last is always
// "go".
func Sets() []*Set { return append(vectorSets(), plainSet()) }

// Best returns the fastest set that runs on this processor.
func Best() *Set { return Sets()[0] }

// Named returns the set of that name. Its error wraps ErrUnknown if this processor or
// build lacks the set.
func Named(name string) (*Set, error) {
	var names []string
	for _, s := range Sets() {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	return nil, fmt.Errorf("%w %q: this processor and build have %s", ErrUnknown, name, strings.Join(names, ", "))
}

// Name returns "avx512", "avx2", "neon" or "go".
func (s *Set) Name() string { return s.name }

// Arithmetic names the rounding and the order of sums: sets with equal
// arithmetic give equal bits.
func (s *Set) Arithmetic() string { return s.arithmetic }

// Pad returns the smallest multiple of Lanes that is at least n.
func Pad(n int) int { return (n + Lanes - 1) / Lanes * Lanes }

// PanelWidth is the number of columns that lie together in a packed matrix.
const PanelWidth = 32

// MatMul sets the m×n matrix C to the product of A (m×k) and B (k×n), or adds the product
// to C if add is true. C[i][j] lies at c[i·cRow+j], A[i][p] at a[i·aRow+p·aStep] and
// B[p][j] at b[p·bRow+j]. n is a multiple of Lanes.
func (s *Set) MatMul(c []float32, cRow int, a []float32, aRow, aStep int, b []float32, bRow, m, n, k int, add bool) {
	if m == 0 || n == 0 {
		return
	}
	if k == 0 {
		for i := 0; i < m && !add; i++ {
			clear(c[i*cRow : i*cRow+n])
		}
		return
	}
	if n%Lanes != 0 {
		panic("kernel: columns are no multiple of Lanes")
	}
	_, _, _ = c[(m-1)*cRow+n-1], a[(m-1)*aRow+(k-1)*aStep], b[(k-1)*bRow+n-1]
	var old int
	if add {
		old = 1
	}
	for j := 0; j < n; {
		tiles, width := &s.narrow, Lanes
		if n-j >= PanelWidth && s.wide[len(s.wide)-1] != nil {
			tiles, width = &s.wide, PanelWidth
		}
		for i, t := 0, 0; i < m; {
			for tileRows[t] > m-i || tiles[t] == nil {
				t++
			}
			tiles[t](&c[i*cRow+j], 4*cRow, &a[i*aRow], 4*aRow, 4*aStep, &b[j], 4*bRow, k, old)
			i += tileRows[t]
		}
		j += width
	}
}

// MatMulPacked computes what MatMul computes, with B packed by PackRows or PackColumns,
// and with contiguous numbers in each row of A.
func (s *Set) MatMulPacked(c []float32, cRow int, a []float32, aRow int, packed []float32, m, n, k int, add bool) {
	for j := 0; j < n; j += PanelWidth {
		width := min(PanelWidth, n-j)
		s.MatMul(c[j:], cRow, a, aRow, 1, packed[j*k:], width, m, width, k, add)
	}
}

// PackColumns packs B (k×n, row-major) into panels of PanelWidth columns, the
// last of which may be narrower.
func PackColumns(packed, b []float32, k, n int) {
	for j := 0; j < n; j += PanelWidth {
		width := min(PanelWidth, n-j)
		panel := packed[j*k : (j+width)*k]
		for p := range k {
			copy(panel[p*width:(p+1)*width], b[p*n+j:])
		}
	}
}

// PackRows packs the transpose of W (n×k, row-major) as PackColumns would. W is the
// weights of a linear layer, [out, in], packed for the product with the layer's input.
func PackRows(packed, w []float32, n, k int) {
	for j := 0; j < n; j += PanelWidth {
		width := min(PanelWidth, n-j)
		panel := packed[j*k : (j+width)*k]
		// Blocks of rows keep both sides in the first-level cache.
		for first := 0; first < k; first += Lanes {
			last := min(first+Lanes, k)
			for i := range width {
				for p, x := range w[(j+i)*k+first : (j+i)*k+last] {
					panel[(first+p)*width+i] = x
				}
			}
		}
	}
}

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

// transposeRows is how many rows the vector transposition takes at once, and how
// many columns are a block.
const transposeRows = 8

// BlockDepth is how many rows of weights MatMulPackedRows transposes at once. With a
// panel's columns they are few enough for the first-level cache.
const BlockDepth = 256

// Transpose sets to[j·toRow+i] to from[i·fromRow+j] for i below rows and j below cols.
func (s *Set) Transpose(to []float32, toRow int, from []float32, fromRow, rows, cols int) {
	if rows == 0 || cols == 0 {
		return
	}
	_, _ = to[(cols-1)*toRow+rows-1], from[(rows-1)*fromRow+cols-1]
	whole := rows / transposeRows * transposeRows
	if s.transpose == nil || cols%transposeRows > 0 {
		whole = 0
	}
	for i := 0; i < whole; i += transposeRows {
		s.transpose(&to[i], 4*toRow, &from[i*fromRow], 4*fromRow, cols/transposeRows)
	}
	if whole < rows {
		plainTranspose(to[whole:], toRow, from[whole*fromRow:], fromRow, rows-whole, cols)
	}
}

func plainTranspose(to []float32, toRow int, from []float32, fromRow, rows, cols int) {
	for i := range rows {
		for j, x := range from[i*fromRow : i*fromRow+cols] {
			to[j*toRow+i] = x
		}
	}
}

// MatMulPackedRows sets the columns of C from first to last (multiples of
// PanelWidth, or last n) to those of the product of A (m×k) and W (k×n); packed is the
// result of PackRows for W. It computes the gradient of a linear layer's input from that
// of its output and the weights that its forward product reads. buffer has room for
// BlockDepth·PanelWidth numbers. Each element is the chain that MatMul computes.
func (s *Set) MatMulPackedRows(c []float32, cRow int, a []float32, aRow int, packed []float32, m, n, k, first, last int, buffer []float32) {
	for p := 0; p < k; p += BlockDepth {
		depth := min(BlockDepth, k-p)
		for j := first; j < last; j += PanelWidth {
			width := min(PanelWidth, n-j)
			for q := p; q < p+depth; q += PanelWidth {
				rows := min(PanelWidth, k-q) // a panel of the packed weights holds so many rows of W
				s.Transpose(buffer[(q-p)*width:], width, packed[q*n+j*rows:], rows, width, rows)
			}
			s.MatMul(c[j:], cRow, a[p:], aRow, 1, buffer, width, m, width, depth, p > 0)
		}
	}
}
