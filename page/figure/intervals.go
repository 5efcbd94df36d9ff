package figure

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"

	"github.com/fulgurite/fulgurite/internal/chart"
	"github.com/fulgurite/fulgurite/page/format"
)

// The places of intervals in their own coordinates. The width is that of a Figure, so that
// their letters have the same size.
const (
	intervalsLeft   = 96.0
	intervalsRow    = 22.0
	intervalsTicks  = 5
	maxOfIntervals  = 40 // rows that are drawn, the first ones
	maxOfRowsLetter = 16 // letters of a row's name
)

// Interval is a difference with its interval.
type Interval struct {
	Name             string
	Value, Low, High float64
}

// Intervals are differences below each other, over one axis that has 0.
type Intervals struct {
	Title string
	Rows  []Interval
}

// Summary says in words what is drawn.
func (v Intervals) Summary() string {
	parts := make([]string, 0, len(v.Rows))
	for _, r := range v.drawn() {
		parts = append(parts, fmt.Sprintf("%s %s, from %s to %s", r.Name, format.Change(r.Value), format.Change(r.Low), format.Change(r.High)))
	}
	return v.Title + ": " + strings.Join(parts, "; ")
}

// drawn returns the rows that are drawn: those that are finite.
func (v Intervals) drawn() []Interval {
	var out []Interval
	for _, r := range v.Rows {
		sum := r.Value + r.Low + r.High
		if len(out) < maxOfIntervals && !math.IsNaN(sum) && !math.IsInf(sum, 0) && r.Low <= r.High {
			out = append(out, r)
		}
	}
	return out
}

// SVG draws the rows, or returns nothing if there are none.
func (v Intervals) SVG() template.HTML {
	rows := v.drawn()
	if len(rows) == 0 {
		return ""
	}
	low, high := 0.0, 0.0
	for _, r := range rows {
		low, high = min(low, r.Low, r.Value), max(high, r.High, r.Value)
	}
	if low == high {
		high = 1
	}
	axis := chart.NewAxis(low, high, intervalsTicks)
	ticks := axis.Ticks()
	first, last := ticks[0].Value, ticks[len(ticks)-1].Value
	at := func(x float64) float64 {
		return intervalsLeft + (x-first)/(last-first)*(figureRight-8-intervalsLeft)
	}
	bottom := figureTop + intervalsRow*float64(len(rows))
	d := Drawing{}
	d.Add(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, figureWidth, bottom+20, html.EscapeString(v.Summary()))
	for _, t := range ticks {
		d.Add(`<line class="grid" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, at(t.Value), at(t.Value), figureTop, bottom)
		d.Text(at(t.Value), bottom+14, "middle", format.Minus(t.Label))
	}
	d.Add(`<line class="zero" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, at(0), at(0), figureTop-4, bottom)
	for i, r := range rows {
		y := figureTop + intervalsRow*(float64(i)+0.5)
		d.Text(intervalsLeft-10, y+3.5, "end", format.Words(r.Name, maxOfRowsLetter))
		d.Add(`<path class="interval line0" d="M%.1f %.1fH%.1fM%.1f %.1fv8M%.1f %.1fv8"/>`, at(r.Low), y, at(r.High), at(r.Low), y-4, at(r.High), y-4)
		d.Add(`<circle class="dot line0" cx="%.1f" cy="%.1f" r="3"/>`, at(r.Value), y)
	}
	d.Add(`</svg>`)
	return template.HTML(d.String()) // all text in it is escaped
}
