package chart

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Point is one value of a series.
type Point struct{ X, Y float64 }

// Series is one line.
type Series struct {
	// Name stands in the legend, which a plot with several series has.
	Name   string
	Points []Point
}

// Plot describes a drawing. It is only read.
type Plot struct {
	Title  string
	XLabel string
	YLabel string
	Series []Series
}

// noPoints is shown instead of a curve.
const noPoints = "no points yet"

// largest is the largest magnitude that is drawn: differences of larger numbers
// would leave the range of a float64.
const largest = 1e150

// line is a series prepared for drawing: its points ordered by X, in pieces that end
// where a point is not finite.
type line struct {
	name   string
	pieces [][]Point
}

func (l line) points() []Point { return slices.Concat(l.pieces...) }

func (p Plot) lines() []line {
	lines := make([]line, len(p.Series))
	for i, s := range p.Series {
		lines[i] = line{printable(s.Name), pieces(s.Points)}
	}
	return lines
}

func pieces(points []Point) [][]Point {
	sorted := slices.SortedStableFunc(slices.Values(points), func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	var cut [][]Point
	var piece []Point
	for _, p := range sorted {
		switch {
		case drawable(p.X) && drawable(p.Y):
			piece = append(piece, p)
		case len(piece) > 0:
			cut, piece = append(cut, piece), nil
		}
	}
	if len(piece) > 0 {
		cut = append(cut, piece)
	}
	return cut
}

func drawable(v float64) bool { return math.Abs(v) <= largest } // false for NaN

// printable removes what could control a terminal, since others may have chosen the
// names.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
}

// axes finds the scales that show all lines. ok is false without any point.
func axes(lines []line, xTicks, yTicks int) (x, y scale, ok bool) {
	var xs, ys []float64
	for _, l := range lines {
		for _, p := range l.points() {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	if len(xs) == 0 {
		return scale{}, scale{}, false
	}
	// The x axis may begin anywhere. The height of a curve can be judged only if the y
	// axis includes zero, unless zero is far away.
	low, high := slices.Min(ys), slices.Max(ys)
	if low > 0 && low <= high/2 {
		low = 0
	}
	return roundScale(slices.Min(xs), slices.Max(xs), xTicks), roundScale(low, high, yTicks), true
}
