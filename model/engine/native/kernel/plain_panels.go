package kernel

import (
	"unsafe"

	"github.com/fulgurite/fulgurite/model/half"
)

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
