package kernel

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
