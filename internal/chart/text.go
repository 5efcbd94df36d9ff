package chart

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/guptarohit/asciigraph"
)

// Text draws the plot as lines of text, each ended by a line feed: the title, the graph
// with both axes, the name of the x axis and the legend.
func (p Plot) Text(style Style) string {
	style = style.withDefaults()
	lines := p.lines()
	out := []string{"  " + p.heading(style)}
	rows := style.Height - 4 // title, x axis, its labels, its name
	if len(lines) > 1 {
		rows-- // legend
	}
	x, y, ok := axes(lines, max(style.Width/12, 2), max(rows/3, 2))
	switch {
	case style.Width < LeastWidth: // the title says that there is a curve
	case !ok:
		out = append(out, "  "+noPoints)
	default:
		labels, gutter := y.labels()
		last := len(x.label(x.count - 1)) // half of it extends beyond the right end of the graph
		columns := max(style.Width-gutter-3-(last+1)/2, 2)
		out = append(out, graph(lines, x, y, labels, columns, rows, style)...)
		name := printable(p.XLabel)
		out = append(out, strings.Repeat(" ", gutter+3+max(columns-utf8.RuneCountInString(name), 0)/2)+name)
		if len(lines) > 1 {
			out = append(out, legendText(lines, gutter+3, style))
		}
	}
	var b strings.Builder
	for _, line := range out {
		if !strings.Contains(line, "\x1b") { // colours take bytes and no room
			line = cut(line, style.Width)
		}
		if line = strings.TrimRight(line, " "); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func (p Plot) heading(style Style) string {
	title, label := printable(p.Title), printable(p.YLabel)
	switch {
	case title == "" || label == "":
		return title + label
	case style.Unicode:
		return title + " · " + label
	}
	return title + " - " + label
}

// graph draws the lines between the y axis and the x axis. The library gets heights in
// rows and one value for each column, so that both axes have the ticks of their scales.
func graph(lines []line, x, y scale, labels []string, columns, rows int, style Style) []string {
	height := rows - 1
	at := map[int]string{} // labels by row
	for i, label := range labels {
		at[int(math.Round(float64(i*height)/float64(y.count-1)))] = label
	}
	data := make([][]float64, len(lines))
	for i, l := range lines {
		data[i] = l.columns(columns, x, y, float64(height))
	}
	options := []asciigraph.Option{
		asciigraph.Height(height), asciigraph.LowerBound(0), asciigraph.UpperBound(float64(height)),
		asciigraph.YAxisValueFormatter(func(row float64) string { return at[int(math.Round(row))] }),
		asciigraph.XAxisRange(0, float64(x.count-1)), asciigraph.XAxisTickCount(x.count),
		asciigraph.XAxisValueFormatter(func(i float64) string { return x.label(int(math.Round(i))) }),
	}
	var colours []asciigraph.AnsiColor
	var marks []asciigraph.CharSet
	for i := range lines {
		colours = append(colours, style.colour(i))
		marks = append(marks, asciigraph.CreateCharSet(style.mark(i)))
	}
	if style.Colour {
		options = append(options, asciigraph.SeriesColors(colours...))
	}
	if style.Colour && style.Unicode || len(lines) == 1 && style.Unicode {
		marks = nil // there is one line, or colours distinguish the lines
	}
	text := asciigraph.PlotMany(data, append(options, asciigraph.SeriesChars(marks...))...)
	if !style.Unicode {
		text = strings.NewReplacer("┤", "|", "┼", "+", "└", "+", "┬", "+", "─", "-").Replace(text)
	}
	return strings.Split(text, "\n")
}

// columns returns the height of a line in each of n columns: the mean of the points in
// the column, or, if there are none, the height interpolated between the neighbouring
// points. The height is NaN where the line has no points on both sides.
func (l line) columns(n int, x, y scale, height float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = math.NaN()
	}
	at := func(p Point) float64 { return x.at(p.X) * float64(n-1) }
	for _, piece := range l.pieces {
		next := 0
		for c := math.Round(at(piece[0])); c <= math.Round(at(piece[len(piece)-1])); c++ {
			sum, count := 0.0, 0.0
			for ; next < len(piece) && math.Round(at(piece[next])) == c; next++ {
				sum += y.at(piece[next].Y)
				count++
			}
			if count == 0 {
				before, after := piece[next-1], piece[next]
				part := (c - at(before)) / (at(after) - at(before))
				sum, count = (1-part)*y.at(before.Y)+part*y.at(after.Y), 1
			}
			out[int(c)] = sum / count * height
		}
	}
	return out
}

// legendText names the lines, as many as there is room for.
func legendText(lines []line, indent int, style Style) string {
	text, width := strings.Repeat(" ", indent), indent
	for i, l := range lines {
		mark := style.mark(i)
		if style.Unicode && style.Colour {
			mark = "──"
		}
		room := style.Width - width - utf8.RuneCountInString(mark) - 1
		name := cut(l.name, room)
		if room <= 0 || name == "" && l.name != "" {
			break
		}
		width += utf8.RuneCountInString(mark+name) + 4
		if style.Colour {
			mark = style.colour(i).String() + mark + asciigraph.Default.String()
		}
		text += mark + " " + name + "   "
	}
	return text
}

// cut keeps the first characters of a text, as many as there is room for.
func cut(text string, room int) string {
	if utf8.RuneCountInString(text) <= room {
		return text
	}
	return string([]rune(text)[:max(room, 0)])
}
