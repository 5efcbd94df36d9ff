package chart

import "math"

// canvas is a grid of cells, each of dots that lines are drawn with. Braille
// characters have 2 × 4 dots; other marks are the one dot of their cell.
type canvas struct {
	columns, rows int // in cells
	wide, high    int // dots of a cell
	cells         []cell
}

type cell struct {
	dots   rune // the bits of a braille character
	series int  // that drew last, from 1; 0 for an empty cell
}

func newCanvas(columns, rows int, braille bool) *canvas {
	c := &canvas{columns: columns, rows: rows, wide: 1, high: 1, cells: make([]cell, columns*rows)}
	if braille {
		c.wide, c.high = 2, 4
	}
	return c
}

// draw adds a line.
func (c *canvas) draw(series int, l line, x, y scale) {
	for _, piece := range l.pieces {
		column, row := c.dot(piece[0], x, y)
		c.set(column, row, series)
		for _, p := range piece[1:] {
			toColumn, toRow := c.dot(p, x, y)
			c.stroke(column, row, toColumn, toRow, series)
			column, row = toColumn, toRow
		}
	}
}

func (c *canvas) dot(p Point, x, y scale) (column, row int) {
	column = int(math.Round(x.at(p.X) * float64(c.columns*c.wide-1)))
	row = int(math.Round((1 - y.at(p.Y)) * float64(c.rows*c.high-1)))
	return column, row
}

// row is the row of cells that shows the value v.
func (c *canvas) row(v float64, y scale) int {
	return int(math.Round((1-y.at(v))*float64(c.rows*c.high-1))) / c.high
}

// column is the column of cells that shows the value v.
func (c *canvas) column(v float64, x scale) int {
	return int(math.Round(x.at(v)*float64(c.columns*c.wide-1))) / c.wide
}

// stroke sets the dots between two, both included.
func (c *canvas) stroke(column, row, toColumn, toRow, series int) {
	steps := max(abs(toColumn-column), abs(toRow-row), 1)
	for i := range steps + 1 {
		at := float64(i) / float64(steps)
		c.set(
			column+int(math.Round(at*float64(toColumn-column))),
			row+int(math.Round(at*float64(toRow-row))),
			series,
		)
	}
}

func (c *canvas) set(column, row, series int) {
	// The dots of a braille character in the order of Unicode: 1 to 3 and 7 down
	// the left, 4 to 6 and 8 down the right.
	bits := [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}
	at := &c.cells[row/c.high*c.columns+column/c.wide]
	at.dots |= bits[row%c.high][column%c.wide]
	at.series = series
}

func abs(v int) int { return max(v, -v) }
