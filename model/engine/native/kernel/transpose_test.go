package kernel_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

func TestTransposeSwapsRowsAndColumns(t *testing.T) {
	t.Parallel()
	for _, set := range kernel.Sets() {
		rapid.Check(t, func(t *rapid.T) {
			rows, cols := rapid.IntRange(0, 40).Draw(t, "rows"), rapid.IntRange(0, 40).Draw(t, "cols")
			if rapid.Bool().Draw(t, "whole blocks") {
				rows, cols = rows/8*8, cols/8*8
			}
			toRow, fromRow := rows+rapid.IntRange(0, 5).Draw(t, "more"), cols+rapid.IntRange(0, 5).Draw(t, "more")
			from, to := random(rows*fromRow, 1), random(cols*toRow, 2)
			want := append([]float32{}, to...)
			for i := range rows {
				for j := range cols {
					want[j*toRow+i] = from[i*fromRow+j]
				}
			}
			set.Transpose(to, toRow, from, fromRow, rows, cols)
			equalBits(t, want, to, set.Name())
		})
		x := make([]float32, 64)
		require.Panics(t, func() { set.Transpose(x[:63], 8, x, 8, 8, 8) })
		require.Panics(t, func() { set.Transpose(x, 8, x[:63], 8, 8, 8) })
	}
}

// The gradient of an input is the same to the bit whether the weights were packed for
// this gradient or for the forward product.
func TestMatMulPackedRowsIsTheProductWithPackedColumns(t *testing.T) {
	t.Parallel()
	for _, set := range kernel.Sets() {
		for _, shape := range [][3]int{{1, 16, 16}, {5, 48, 80}, {9, 64, 272}, {17, 112, 528}, {8, 32, 512}} {
			m, n, k := shape[0], shape[1], shape[2]
			a, w := random(m*k, 1), random(k*n, 2)
			columns, rows := make([]float32, k*n), make([]float32, k*n)
			kernel.PackColumns(columns, w, k, n)
			kernel.PackRows(rows, w, k, n)
			want, have := random(m*n, 3), random(m*n, 4)
			set.MatMulPacked(want, n, a, k, columns, m, n, k, false)
			buffer := random(kernel.BlockDepth*kernel.PanelWidth, 5)
			for first := 0; first < n; first += 2 * kernel.PanelWidth {
				set.MatMulPackedRows(have, n, a, k, rows, m, n, k, first, min(first+2*kernel.PanelWidth, n), buffer)
			}
			equalBits(t, want, have, fmt.Sprint(set.Name(), shape))
		}
	}
}

// Both products of a linear layer's input gradient, at the shape of a feed-forward
// layer of SmolLM2 and 256 positions.
func BenchmarkInputGradient(b *testing.B) {
	const m, n, k = 256, 576, 3072
	a, w, c := random(m*k, 1), random(k*n, 2), make([]float32, m*n)
	columns, rows, buffer := make([]float32, k*n), make([]float32, k*n), make([]float32, kernel.BlockDepth*kernel.PanelWidth)
	kernel.PackColumns(columns, w, k, n)
	kernel.PackRows(rows, w, k, n)
	for _, set := range kernel.Sets() {
		for name, product := range map[string]func(){
			"columns": func() { set.MatMulPacked(c, n, a, k, columns, m, n, k, false) },
			"rows":    func() { set.MatMulPackedRows(c, n, a, k, rows, m, n, k, 0, n, buffer) },
		} {
			b.Run(set.Name()+"/"+name, func(b *testing.B) {
				for b.Loop() {
					product()
				}
				b.ReportMetric(2*m*n*k*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
