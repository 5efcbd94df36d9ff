// Package chart draws curves: as text for a terminal, and as an SVG for a page or a
// README. It draws lines over a numeric axis with ticks, a title and a legend, which is
// what the rewards of a training need, and nothing else.
//
// The graph in a text is drawn by asciigraph, which has no dependencies, with the ticks
// of our scales. The SVG is written by this package: gonum/plot and go-analyze/charts use
// one fixed colour scheme on white, which a README in dark mode shows as a box, and make
// a small binary 8 and 2 MB larger. Our SVG follows the reader's colour scheme.
//
// A [Plot] holds plain values. Points may be in any order and are drawn by X. Points that
// are not finite are left out and interrupt the line. Drawing never fails because of what
// a plot holds: without points, the drawing says so.
//
// Guarantees: equal plots and sizes give equal bytes. Text has at most the requested
// width (but at least [LeastWidth]), and without colours its only control character is
// the line feed. An SVG is well-formed whatever the names contain, has no script and
// loads nothing.
package chart

import (
	"cmp"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/guptarohit/asciigraph"
	"golang.org/x/term"
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

// Axis maps an interval of values to positions and knows its round ticks. It is for
// drawings that a Plot cannot describe.
type Axis struct{ scale scale }

// Tick is a round value of an axis and its label.
type Tick struct {
	Value float64
	Label string
}

// NewAxis returns an axis that covers at least low to high and begins and ends at ticks.
// The number of ticks is about the given one. Both ends have to be finite; if they are
// equal, the interval is widened.
func NewAxis(low, high float64, ticks int) Axis {
	return Axis{roundScale(max(low, -largest), min(high, largest), ticks)}
}

// At returns the position of v between the low end (0) and the high end (1).
func (a Axis) At(v float64) float64 { return a.scale.at(v) }

// Ticks returns the ticks of the axis, from the low end to the high one.
func (a Axis) Ticks() []Tick {
	ticks := make([]Tick, a.scale.count)
	for i := range ticks {
		ticks[i] = Tick{a.scale.tick(i), a.scale.label(i)}
	}
	return ticks
}

// scale maps an interval of values to positions and knows its ticks.
type scale struct {
	low, high float64
	first     float64 // the first tick
	step      float64 // between ticks
	count     int     // of ticks
}

// roundScale covers at least low to high and begins and ends at ticks.
func roundScale(low, high float64, ticks int) scale {
	low, high = apart(low, high)
	step := roundStep(high-low, ticks)
	first := math.Floor(low/step+1e-9) * step
	count := int(math.Ceil((high-first)/step-1e-9)) + 1
	return scale{first, first + float64(count-1)*step, first, step, count}
}

// apart widens an interval that has no length, or one too small for the
// precision of its ends.
func apart(low, high float64) (float64, float64) {
	least := max(1e-9*max(math.Abs(low), math.Abs(high)), 1e-150)
	if high-low >= least {
		return low, high
	}
	middle := low + (high-low)/2
	half := max(math.Abs(middle)/2, 0.5)
	return middle - half, middle + half
}

// roundStep returns the smallest of 1, 2 and 5 times a power of ten with which the span
// has at most the given number of steps. There is always at least one step.
func roundStep(span float64, steps int) float64 {
	raw := span / float64(max(steps, 1))
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= raw*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// at returns the position of v between low (0) and high (1).
func (s scale) at(v float64) float64 {
	return min(max((v-s.low)/(s.high-s.low), 0), 1)
}

func (s scale) tick(i int) float64 {
	v := s.first + float64(i)*s.step
	if math.Abs(v) < s.step/2 {
		return 0 // not 1e-17, and not negative zero
	}
	return v
}

// label returns the text of a tick, with as many digits as distinguish it from its
// neighbours.
func (s scale) label(i int) string {
	v := s.tick(i)
	widest := max(math.Abs(s.first), math.Abs(s.tick(s.count-1)))
	if widest >= 1e7 || widest < 1e-4 {
		digits := int(math.Ceil(math.Log10(widest/s.step)+1e-9)) + 1
		return strconv.FormatFloat(v, 'g', min(digits, 17), 64)
	}
	decimals := max(0, int(math.Ceil(-math.Log10(s.step)-1e-9)))
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// labels returns the labels of all ticks, and the width of the widest in characters.
func (s scale) labels() (labels []string, width int) {
	for i := range s.count {
		labels = append(labels, s.label(i))
		width = max(width, len(labels[i]))
	}
	return labels, width
}

// Style tells how to draw text. The zero value means ASCII in 80 columns without colours,
// which any terminal and any log can show.
type Style struct {
	// Width and Height in characters, all included; zero means 80 and 20.
	Width, Height int
	// Unicode draws with lines and marks of Unicode, else of ASCII.
	Unicode bool
	// Colour distinguishes series by the terminal's colours instead of by marks.
	Colour bool
}

// LeastWidth is the smallest width in which there is room for a graph: a narrower style gets
// the title alone. LeastHeight is the smallest height that is drawn, even if less is
// requested.
const (
	LeastWidth  = 24
	LeastHeight = 8
)

// StyleOf returns the style that f can show, given the environment (os.Getenv). It has
// colours only on a terminal, and only if NO_COLOR is not set and TERM is not "dumb". It
// has Unicode if the locale has UTF-8. Its width is the terminal's, up to 100 columns.
func StyleOf(f *os.File, environment func(string) string) Style {
	s := Style{Unicode: hasUTF8(environment)}
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return s
	}
	if environment("TERM") == "dumb" {
		s.Unicode = false
	} else {
		s.Colour = environment("NO_COLOR") == ""
	}
	if width, height, err := term.GetSize(fd); err == nil && width > 0 && height > 0 {
		// A wider line is hard to read. A drawing as high as the terminal would scroll
		// its own title out of view.
		s.Width, s.Height = min(width, 100), min(max(height-4, LeastHeight), 20)
	}
	return s
}

// hasUTF8 looks at the variables in the order in which they override each other.
func hasUTF8(environment func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToUpper(environment(name)); locale != "" {
			return strings.Contains(locale, "UTF-8") || strings.Contains(locale, "UTF8")
		}
	}
	return false
}

func (s Style) withDefaults() Style {
	if s.Width == 0 {
		s.Width = 80
	}
	if s.Height == 0 {
		s.Height = 20
	}
	s.Height = max(s.Height, LeastHeight)
	return s
}

// mark returns the mark that distinguishes line i without colours.
func (s Style) mark(i int) string {
	marks := []string{"*", "o", "x", "#", "@", "%"}
	if s.Unicode {
		marks = []string{"●", "○", "◆", "◇", "■", "□"}
	}
	return marks[i%len(marks)]
}

// colour returns the colour of line i. All colours are legible on black and on white.
func (s Style) colour(i int) asciigraph.AnsiColor {
	colours := []asciigraph.AnsiColor{asciigraph.Teal, asciigraph.Olive, asciigraph.Green, asciigraph.Purple, asciigraph.Maroon, asciigraph.Navy}
	return colours[i%len(colours)]
}
