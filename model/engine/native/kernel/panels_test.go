package kernel_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// narrow packs w, [n, k], as BF16 or Q8. It also returns the float32 values of the packed
// numbers, packed too.
func narrow(form string, w []float32, n, k int) (narrow, wide kernel.Panels) {
	if form == "bf16" {
		narrow.BF16 = make([]uint16, n*k)
	} else {
		narrow.Q8, narrow.Factors = make([]int8, n*k), make([]float32, n*k/kernel.QuantBlock)
	}
	rounded := make([]float32, n*k)
	for i := range n {
		j := i / kernel.PanelWidth * kernel.PanelWidth
		step := min(kernel.PanelWidth, n-j)
		for p := 0; p < k; p += kernel.QuantBlock {
			block := w[i*k+p : i*k+min(p+kernel.QuantBlock, k)]
			at, factor := j*k+p*step+i-j, j*k/kernel.QuantBlock+p/kernel.QuantBlock*step+i-j
			narrow.Put(at, step, factor, block)
			for q := range block {
				rounded[i*k+p+q] = narrow.Number(at+q*step, factor)
			}
		}
	}
	wide.F32 = make([]float32, n*k)
	kernel.PackRows(wide.F32, rounded, n, k)
	return narrow, wide
}

// narrowProducts returns both products with BF16 and Q8. It rounds the sizes up to those
// that the forms allow.
func narrowProducts(set *kernel.Set, seed uint64, m, n, k int) map[string][]float32 {
	n, k = (n+31)/32*32, (k+31)/32*32
	out := map[string][]float32{}
	for _, form := range []string{"bf16", "q8"} {
		p, _ := narrow(form, random(n*k, seed+3), n, k)
		c := random(m*n, seed+4)
		set.MatMulPanels(c, n, random(m*k, seed+5), k, p, m, n, k, seed%2 == 0)
		out[form+"Product"] = c
		c = make([]float32, m*k)
		set.MatMulPanelsRows(c, k, random(m*n, seed+6), n, p, m, k, n, 0, k, make([]float32, kernel.RowsBuffer))
		out[form+"Rows"] = c
	}
	return out
}

// TestNarrowProductsAreThoseOfTheNumbersTheyStandFor checks the reason why sampler and
// trainer agree to the bit: a form changes which memory is read, but no number.
func TestNarrowProductsAreThoseOfTheNumbersTheyStandFor(t *testing.T) {
	t.Parallel()
	for _, set := range kernel.Sets() {
		for _, form := range []string{"bf16", "q8"} {
			rapid.Check(t, func(t *rapid.T) {
				m, n := rapid.IntRange(1, 21).Draw(t, "m"), 16*rapid.IntRange(1, 20).Draw(t, "n/16")
				k, add := 32*rapid.IntRange(1, 12).Draw(t, "k/32"), rapid.Bool().Draw(t, "add")
				p, wide := narrow(form, random(n*k, 1), n, k)
				a, old := random(m*k, 2), random(m*n, 3)
				want, have := append([]float32{}, old...), append([]float32{}, old...)
				set.MatMulPanels(want, n, a, k, wide, m, n, k, add)
				set.MatMulPanels(have, n, a, k, p, m, n, k, add)
				equalBits(t, want, have, set.Name(), form)
				if n > kernel.PanelWidth { // the same from the second panel on
					rest := n - kernel.PanelWidth
					part := append([]float32{}, old...)
					set.MatMulPanels(part[kernel.PanelWidth:], n, a, k, p.From(kernel.PanelWidth*k), m, rest, k, add)
					for i := range m {
						equalBits(t, want[i*n+kernel.PanelWidth:(i+1)*n], part[i*n+kernel.PanelWidth:(i+1)*n])
					}
				}
				d, buffer := random(m*n, 4), make([]float32, kernel.RowsBuffer)
				want, have = make([]float32, m*k), make([]float32, m*k)
				set.MatMulPanelsRows(want, k, d, n, wide, m, k, n, 0, k, buffer)
				set.MatMulPanelsRows(have, k, d, n, p, m, k, n, 0, k, buffer)
				equalBits(t, want, have, set.Name(), form)
			})
		}
	}
}

func TestNarrowProductsRefuseOddSizes(t *testing.T) {
	t.Parallel()
	set, x := kernel.Best(), make([]float32, 64)
	q := kernel.Panels{Q8: make([]int8, 16*48), Factors: make([]float32, 16*48/32)}
	require.Panics(t, func() { set.MatMulPanels(x, 16, x, 48, q, 1, 16, 48, false) })
	b := kernel.Panels{BF16: make([]uint16, 16*31)}
	require.Panics(t, func() { set.MatMulPanels(x, 16, x, 32, b, 1, 16, 32, false) })
	require.Panics(t, func() { set.MatMulPanels(x[:15], 16, x, 31, b, 1, 16, 31, false) })
}

// BenchmarkPanels reads a matrix that no cache holds, for one row and for 32.
func BenchmarkPanels(b *testing.B) {
	const n, k = 16384, 2048
	w := random(n*k, 1)
	bf16, wide := narrow("bf16", w, n, k)
	q8, _ := narrow("q8", w, n, k)
	for _, m := range []int{1, 8, 32} {
		x, y := random(m*k, 2), make([]float32, m*n)
		for _, form := range []struct {
			name string
			p    kernel.Panels
		}{{"f32", wide}, {"bf16", bf16}, {"q8", q8}} {
			for _, set := range kernel.Sets() {
				if set.Name() == "go" {
					continue
				}
				b.Run(fmt.Sprintf("%s/%s/%d", form.name, set.Name(), m), func(b *testing.B) {
					for b.Loop() {
						set.MatMulPanels(y, n, x, k, form.p, m, n, k, false)
					}
					b.ReportMetric(2*float64(m)*n*k*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
