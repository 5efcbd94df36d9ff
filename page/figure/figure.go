// Package figure draws curves as SVG. Their colours are classes of the page's style.
//
// It draws the data that it gets and reads nothing. It escapes text, so that a name which
// someone else chose can't become markup.
package figure

import (
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/internal/chart"
	"github.com/fulgurite/fulgurite/page/format"
)

// The drawing's places in its own coordinates; a browser scales it.
const (
	figureWidth, figureHeight = 360.0, 150.0
	figureLeft, figureRight   = 40.0, 350.0
	figureTop, figureBottom   = 10.0, 122.0
	figureTicks               = 6
	// MaxLines is how many lines of a figure have their own colours.
	MaxLines = 6
	// maxPoints is how many points of a line are drawn. If a line has more, each drawn
	// point is the mean of several.
	maxPoints = 400
)

// Figure is one or more curves over steps or versions.
type Figure struct {
	Title string
	Unit  string // of x, "step" or "version"
	Lines []Curve
	Marks []Mark
	// Zoom lets a reader mark a range that is then shown alone.
	Zoom bool
	// Note explains what the figure does not show, for example that nothing is recorded.
	Note string
}

// Curve is a line. Its position in the figure decides its class.
type Curve struct {
	Name   string
	Points []Point
	// Dots means that the points are drawn without a line between them.
	Dots bool
}

// Point is a value, with its interval if Low and High differ.
type Point struct {
	X    float64
	Y    float64
	Low  float64
	High float64
}

// Mark says that something happened at a step or to a version.
type Mark struct {
	X    float64 `json:"x"`
	Kind Kind    `json:"kind"`
	Text string  `json:"text"`
}

// Kind says what a mark is about, and is a class of the page's style.
type Kind string

// The kinds.
const (
	Promoted    Kind = "promoted"
	Refused     Kind = "refused"
	Interrupted Kind = "interrupted" // attempts that were cut off
	Set         Kind = "set"         // keys of the spec
)

// axes are the scales of a figure.
type axes struct{ x, y chart.Axis }

func (a axes) place(x, y float64) (float64, float64) {
	return figureLeft + a.x.At(x)*(figureRight-figureLeft), figureBottom - a.y.At(y)*(figureBottom-figureTop)
}

// thin replaces neighbours by their mean where there are more points than can be seen.
func thin(points []Point) []Point {
	k := (len(points) + maxPoints - 1) / maxPoints
	if k < 2 {
		return points
	}
	var out []Point
	for i := 0; i < len(points); i += k {
		piece := points[i:min(i+k, len(points))]
		m := Point{X: piece[len(piece)-1].X}
		for _, p := range piece {
			m.Y += p.Y / float64(len(piece))
		}
		out = append(out, m)
	}
	return out
}

// finite leaves out points that can't be drawn.
func finite(points []Point) []Point {
	wild := func(p Point) bool { // true if a value is not finite or too large
		return !(math.Abs(p.Y) <= 1e150 && math.Abs(p.Low) <= 1e150 && math.Abs(p.High) <= 1e150)
	}
	if !slices.ContainsFunc(points, wild) {
		return points
	}
	return slices.DeleteFunc(slices.Clone(points), wild)
}

// Empty reports whether there is nothing to draw.
func (f Figure) Empty() bool {
	for _, l := range f.Lines {
		if len(finite(l.Points)) > 0 {
			return false
		}
	}
	return true
}

// Last returns the newest value of the first line as text. Values from 100 on have no
// decimals.
func (f Figure) Last() string {
	if len(f.Lines) == 0 || len(f.Lines[0].Points) == 0 {
		return format.Dash
	}
	y := f.Lines[0].Points[len(f.Lines[0].Points)-1].Y
	if size := math.Abs(y); size >= 100 && size < 1e6 {
		return format.Minus(strconv.FormatFloat(y, 'f', 0, 64))
	}
	return format.Fixed(y)
}

// Summary says in words what a figure shows.
func (f Figure) Summary() string {
	var parts []string
	for _, l := range f.Lines {
		if points := finite(l.Points); len(points) > 0 {
			first, last := points[0], points[len(points)-1]
			parts = append(parts, fmt.Sprintf("%s from %s at %s %g to %s at %s %g", l.Name, format.Fixed(first.Y), f.Unit, first.X, format.Fixed(last.Y), f.Unit, last.X))
		}
	}
	return f.Title + ": " + strings.Join(parts, "; ")
}

// scales returns axes that cover all points of the figure.
func (f Figure) scales() axes {
	left, right, low, high := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, l := range f.Lines {
		for _, p := range finite(l.Points) {
			left, right = min(left, p.X), max(right, p.X)
			low, high = min(low, p.Y), max(high, p.Y)
			if p.Low != p.High {
				low, high = min(low, p.Low), max(high, p.High)
			}
		}
	}
	for _, m := range f.Marks {
		left, right = min(left, m.X), max(right, m.X)
	}
	if low > 0 && low <= high/2 { // without 0 on the axis, heights could not be compared
		low = 0
	}
	if low == high && low == 0 {
		high = 1
	}
	return axes{chart.NewAxis(left, right, figureTicks), chart.NewAxis(low, high, figureTicks)}
}

// Data returns the data that the script shows under the pointer: the lines, and the ends
// of the x axis.
func (f Figure) Data() (string, error) {
	x := f.scales().x.Ticks()
	lines := make([]drawnLine, len(f.Lines))
	for i, l := range f.Lines {
		lines[i] = drawnLine{l.Name, numbers(thin(finite(l.Points)))}
	}
	text, err := json.Marshal(map[string]any{
		"unit": f.Unit, "lines": lines, "marks": f.Marks, "from": x[0].Value, "to": x[len(x)-1].Value,
	})
	return string(text), err
}

// drawnLine is a line for the script, each point as x and y, and the ends of its interval
// where it has one.
type drawnLine struct {
	Name   string      `json:"name"`
	Points [][]float64 `json:"points"`
}

func numbers(points []Point) [][]float64 {
	out := make([][]float64, len(points))
	for i, p := range points {
		out[i] = []float64{p.X, digits(p.Y)}
		if p.Low != p.High {
			out[i] = append(out[i], digits(p.Low), digits(p.High))
		}
	}
	return out
}

// digits rounds a value to six significant digits.
func digits(v float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil {
		return v
	}
	return short
}

// SVG draws the figure. All colours are classes of the page's style.
func (f Figure) SVG() template.HTML {
	d := Drawing{}
	d.Add(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, figureWidth, figureHeight, html.EscapeString(f.Summary()))
	if f.Empty() {
		d.Text((figureLeft+figureRight)/2, (figureTop+figureBottom)/2, "middle", "nothing on record")
	} else {
		d.figure(f)
	}
	d.Add(`</svg>`)
	return template.HTML(d.String()) // all text in it is escaped
}

// Drawing is an SVG that is being written.
type Drawing struct{ strings.Builder }

// Add writes markup. Arguments that other people wrote must be escaped before.
func (d *Drawing) Add(text string, arguments ...any) { fmt.Fprintf(d, text, arguments...) }

// Text writes a label at a place, escaped. anchor is "start", "middle" or "end".
func (d *Drawing) Text(x, y float64, anchor, text string) {
	d.Add(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(text))
}

func (d *Drawing) figure(f Figure) {
	a := f.scales()
	for _, t := range a.y.Ticks() {
		_, y := a.place(0, t.Value)
		d.Add(`<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, figureLeft, figureRight, y, y)
		d.Text(figureLeft-6, y+3.5, "end", format.Minus(t.Label))
	}
	ticks := a.x.Ticks()
	for i, t := range ticks {
		if t.Value != math.Trunc(t.Value) {
			continue // there is no half step
		}
		x, _ := a.place(t.Value, 0)
		anchor := "middle"
		if i == len(ticks)-1 {
			anchor = "end"
		}
		d.Text(x, figureBottom+15, anchor, strconv.FormatFloat(t.Value, 'f', 0, 64))
	}
	d.marks(f.Marks, a)
	for i, l := range f.Lines {
		d.line(l, i, a)
	}
	if f.Zoom {
		d.Add(`<rect class="selection" x="0" width="0" y="%g" height="%g"/>`, figureTop, figureBottom-figureTop)
	}
	d.Add(`<line class="cursor" x1="0" x2="0" y1="%g" y2="%g"/>`, figureTop, figureBottom)
	d.Text(figureRight, figureHeight-2, "end", f.Unit)
}

func (d *Drawing) marks(marks []Mark, a axes) {
	for _, m := range marks {
		x, _ := a.place(m.X, 0)
		title := html.EscapeString(m.Text)
		switch m.Kind {
		case Promoted:
			d.Add(`<g class="promoted"><title>%s</title><line x1="%.1f" x2="%.1f" y1="%g" y2="%g"/><path d="M%.1f %gl3.5 6h-7z"/></g>`,
				title, x, x, figureTop, figureBottom, x, figureBottom-6)
		case Interrupted:
			d.Add(`<g class="interrupted"><title>%s</title><circle cx="%.1f" cy="%g" r="2.6"/></g>`, title, x, figureTop-3)
		case Set:
			d.Add(`<g class="set"><title>%s</title><path d="M%.1f %gl3 3l-3 3l-3 -3z"/></g>`, title, x, figureTop-6)
		case Refused:
			y := figureBottom - 3.0
			d.Add(`<g class="refused"><title>%s</title><path d="M%.1f %.1fl5 5m0 -5l-5 5"/></g>`, title, x-2.5, y-2.5)
		}
	}
}

func (d *Drawing) line(l Curve, i int, a axes) {
	points := thin(finite(l.Points))
	var path strings.Builder
	for k, p := range points {
		x, y := a.place(p.X, p.Y)
		command := "L"
		if k == 0 {
			command = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", command, x, y)
		if p.Low != p.High {
			_, low := a.place(p.X, p.Low)
			_, high := a.place(p.X, p.High)
			d.Add(`<path class="interval line%d" d="M%.1f %.1fV%.1fM%.1f %.1fh4M%.1f %.1fh4"/>`, i, x, low, high, x-2, low, x-2, high)
		}
		if l.Dots || len(points) == 1 {
			d.Add(`<circle class="dot line%d" cx="%.1f" cy="%.1f" r="2.4"/>`, i, x, y)
		}
	}
	if len(points) > 1 && !l.Dots {
		d.Add(`<path class="line line%d" d="%s"/>`, i, path.String())
	}
}

// Sparkline draws a curve without axes.
func Sparkline(values []float64) template.HTML {
	const width, height = 120.0, 28.0
	points := make([]Point, len(values))
	for i, v := range values {
		points[i] = Point{X: float64(i), Y: v}
	}
	points = thin(finite(points))
	d := Drawing{}
	d.Add(`<svg class="spark" viewBox="0 0 %g %g" aria-hidden="true">`, width, height)
	if n := len(points); n > 0 {
		low, high := points[0].Y, points[0].Y
		for _, p := range points {
			low, high = min(low, p.Y), max(high, p.Y)
		}
		x, y := 0.0, 0.0
		command := "M"
		d.Add(`<path class="line line0" d="`)
		for i, p := range points {
			x, y = width-4, height/2
			if n > 1 {
				x = 2 + float64(i)/float64(n-1)*(width-6)
			}
			if high > low {
				y = height - 4 - (p.Y-low)/(high-low)*(height-8)
			}
			d.Add(`%s%.1f %.1f`, command, x, y)
			command = "L"
		}
		d.Add(`"/><circle class="dot line0" cx="%.1f" cy="%.1f" r="2.4"/>`, x, y)
	}
	d.Add(`</svg>`)
	return template.HTML(d.String()) // it has numbers alone
}

// Drawn is a figure that was drawn once, to be shown often.
type Drawn struct {
	Title, Note, Last, Data string
	Empty                   bool
	Lines                   []Curve // without their points
	SVG                     template.HTML
}

// Draw draws figures.
func Draw(figures []Figure) ([]Drawn, error) {
	out := make([]Drawn, len(figures))
	for i, f := range figures {
		d := Drawn{Title: f.Title, Note: f.Note, Last: f.Last(), Empty: f.Empty(), SVG: f.SVG()}
		for _, l := range f.Lines {
			d.Lines = append(d.Lines, Curve{Name: l.Name})
		}
		if !d.Empty {
			var err error
			if d.Data, err = f.Data(); err != nil {
				return nil, err
			}
		}
		out[i] = d
	}
	return out, nil
}
