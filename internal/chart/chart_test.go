package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/internal/chart"
	"github.com/fulgurite/fulgurite/internal/golden"
)

// curve returns a learning curve with noise from a sine.
func curve(from, to float64, every int) []chart.Point {
	var points []chart.Point
	for step := 0; step <= 40; step += every {
		x := float64(step)
		noise := 0.04 * math.Sin(x*x*0.7)
		points = append(points, chart.Point{X: x, Y: from + (to-from)*(1-math.Exp(-x/10)) + noise})
	}
	return points
}

func one() chart.Plot {
	return chart.Plot{
		Title: "Reward", XLabel: "step", YLabel: "mean of the rollouts",
		Series: []chart.Series{{Name: "train", Points: curve(0.26, 0.95, 1)}},
	}
}

func two() chart.Plot {
	p := one()
	p.Series = append(p.Series, chart.Series{Name: "gate", Points: curve(0.24, 0.9, 5)})
	return p
}

// A legend entry that does not fit next to the others goes into a new row, not outside of
// the drawing.
func TestLegendsOfManyLinesHaveRows(t *testing.T) {
	t.Parallel()
	p := one()
	for range 6 {
		p.Series = append(p.Series, chart.Series{Name: "credit.assignment=value_difference", Points: curve(0.24, 0.9, 5)})
	}
	var out bytes.Buffer
	out.Write(p.SVG())
	name := regexp.MustCompile(`<text class="text" x="([0-9.]+)" y="([0-9.]+)" text-anchor="start">([^<]+)<`)
	rows, names := map[string]bool{}, name.FindAllStringSubmatch(out.String(), -1)
	require.Len(t, names, 7)
	for _, n := range names {
		x, err := strconv.ParseFloat(n[1], 64)
		require.NoError(t, err)
		require.Less(t, x+7*float64(len(n[3])), 800.0)
		rows[n[2]] = true
	}
	require.Len(t, rows, 3)
}

func TestDrawingsAreAsBefore(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]chart.Plot{"one": one(), "two": two(), "none": {Title: "Reward"}} {
		for style, s := range map[string]chart.Style{
			"ascii":   {Width: 72, Height: 18},
			"unicode": {Width: 72, Height: 18, Unicode: true},
			"colour":  {Width: 72, Height: 18, Unicode: true, Colour: true},
		} {
			var text bytes.Buffer
			text.WriteString(p.Text(s))
			golden.File(t, filepath.Join("testdata", name+"-"+style+".txt"), text.String())
		}
		var svg bytes.Buffer
		svg.Write(p.SVG())
		golden.File(t, filepath.Join("testdata", name+".svg"), svg.String())
	}
}

// anyPlot returns plots that are as malformed as plots of others could be.
func anyPlot() *rapid.Generator[chart.Plot] {
	return rapid.Custom(func(t *rapid.T) chart.Plot {
		number := rapid.OneOf(
			rapid.Float64Range(-2, 2),
			rapid.Float64(),
			rapid.SampledFrom([]float64{0, 1, 1e7, 1e7 + 1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64}),
		)
		p := chart.Plot{
			Title:  rapid.String().Draw(t, "title"),
			XLabel: rapid.String().Draw(t, "x label"),
			YLabel: rapid.String().Draw(t, "y label"),
		}
		for range rapid.IntRange(0, 8).Draw(t, "series") {
			s := chart.Series{Name: rapid.String().Draw(t, "name")}
			for range rapid.IntRange(0, 30).Draw(t, "points") {
				s.Points = append(s.Points, chart.Point{X: number.Draw(t, "x"), Y: number.Draw(t, "y")})
			}
			p.Series = append(p.Series, s)
		}
		return p
	})
}

func TestTextKeepsToItsWidthAndHeight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := chart.Style{
			Width:   rapid.IntRange(1, 150).Draw(t, "width"),
			Height:  rapid.IntRange(1, 60).Draw(t, "height"),
			Unicode: rapid.Bool().Draw(t, "unicode"),
			Colour:  rapid.Bool().Draw(t, "colour"),
		}
		text := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(anyPlot().Draw(t, "plot").Text(s), "")
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		require.LessOrEqual(t, len(lines), max(s.Height, chart.LeastHeight))
		for _, line := range lines {
			require.LessOrEqual(t, utf8.RuneCountInString(line), s.Width, line)
			require.NotContains(t, strings.Map(control, line), "!", line)
			if !s.Colour { // a colour may end after a blank
				require.False(t, strings.HasSuffix(line, " "), line)
			}
		}
	})
}

func control(r rune) rune {
	if unicode.IsControl(r) {
		return '!'
	}
	return ' '
}

func TestColoursChangeNothingElse(t *testing.T) {
	t.Parallel()
	colours := regexp.MustCompile("\x1b\\[[0-9]+m")
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlot().Draw(t, "plot")
		p.Series = p.Series[:min(len(p.Series), 1)]
		var plain, coloured bytes.Buffer
		plain.WriteString(p.Text(chart.Style{Unicode: true}))
		coloured.WriteString(p.Text(chart.Style{Unicode: true, Colour: true}))
		require.Equal(t, plain.String(), colours.ReplaceAllString(coloured.String(), ""))
	})
}

func TestSVGIsWellFormedAndInside(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlot().Draw(t, "plot")
		var b bytes.Buffer
		b.Write(p.SVG())
		require.NotContains(t, b.String(), "NaN")
		require.NotContains(t, b.String(), "Inf")
		var ticks []float64
		for d := xml.NewDecoder(&b); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			element, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			require.Contains(t, []string{"svg", "style", "g", "text", "line", "path", "circle"}, element.Name.Local)
			if attribute(element, "text-anchor") == "end" { // a label of the y axis
				var label string
				require.NoError(t, d.DecodeElement(&label, &element))
				v, err := strconv.ParseFloat(label, 64)
				require.NoError(t, err)
				ticks = append(ticks, v)
			}
			if element.Name.Local == "circle" {
				x, err := strconv.ParseFloat(attribute(element, "cx"), 64)
				require.NoError(t, err)
				y, err := strconv.ParseFloat(attribute(element, "cy"), 64)
				require.NoError(t, err)
				require.True(t, x >= 0 && x <= 800 && y >= 0 && y <= 420, "%g, %g", x, y)
			}
		}
		for i := 1; i < len(ticks); i++ {
			require.Greater(t, ticks[i], ticks[i-1], "labels %v tell ticks apart", ticks)
		}
	})
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func TestOrderOfPointsDoesNotMatter(t *testing.T) {
	t.Parallel()
	p, reversed := one(), one()
	points := reversed.Series[0].Points
	for i, j := 0, len(points)-1; i < j; i, j = i+1, j-1 {
		points[i], points[j] = points[j], points[i]
	}
	var a, b bytes.Buffer
	a.Write(p.SVG())
	b.Write(reversed.SVG())
	require.Equal(t, a.String(), b.String())
}

func TestGapInterruptsTheLine(t *testing.T) {
	t.Parallel()
	p := one()
	var whole, cut bytes.Buffer
	whole.Write(p.SVG())
	p.Series[0].Points[20].Y = math.NaN()
	cut.Write(p.SVG())
	const path = `<path class="s0 line"`
	require.Equal(t, 1, strings.Count(whole.String(), path))
	require.Equal(t, 2, strings.Count(cut.String(), path))
}

func TestRewardsBetweenZeroAndOneFillTheAxis(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	b.WriteString(one().Text(chart.Style{}))
	require.Regexp(t, `(?m)^ +1\.0 [|]`, b.String())
	require.Regexp(t, `(?m)^ +0\.0 [|]`, b.String())
}
