package kernel

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
