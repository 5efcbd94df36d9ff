package chart

import (
	"fmt"
	"html"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/guptarohit/asciigraph"
)

// The positions of the drawing's parts in its own coordinates. A viewer scales them.
const (
	svgWidth, svgHeight      = 800.0, 420.0
	svgLeft, svgRight        = 64.0, 776.0
	svgTop, svgBottom        = 64.0, 364.0
	svgLegend                = 44.0 // baseline of the first row
	svgRow                   = 20.0 // distance between two rows
	svgCharacter             = 7.2  // mean width of one at 13 px
	svgPointsUntil           = 40   // with more points than this, only the line is drawn
	svgXTicks, svgYTicks int = 8, 5
)

// svgStyle holds colours that are legible on light and on dark backgrounds. In a viewer
// that tells which one it has, text gets more contrast.
const svgStyle = `
.text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#6e7781}
.title{font-size:16px;font-weight:600;fill:#6e7781}
.grid{stroke:#8c959f;stroke-opacity:.25}
.axis{stroke:#8c959f}
.line{fill:none;stroke-width:2.25;stroke-linejoin:round;stroke-linecap:round}
.s0{stroke:#2f7fe6;color:#2f7fe6}.s1{stroke:#e8762c;color:#e8762c}.s2{stroke:#2e9e5b;color:#2e9e5b}
.s3{stroke:#9a6cf0;color:#9a6cf0}.s4{stroke:#e0524d;color:#e0524d}.s5{stroke:#1a9fa8;color:#1a9fa8}
.dot{fill:currentColor;stroke:none}
.area{fill:currentColor;fill-opacity:.09;stroke:none}
@media (prefers-color-scheme:light){.text{fill:#57606a}.title{fill:#24292f}}
@media (prefers-color-scheme:dark){.text{fill:#9da7b3}.title{fill:#e6edf3}}
`

// svgColours is how many series have different colours in svgStyle.
const svgColours = 6

// SVG draws the plot as an SVG document.
func (p Plot) SVG() []byte {
	d := drawing{lines: p.lines()}
	var ok bool
	var names []entry
	if d.x, d.y, ok = axes(d.lines, svgXTicks, svgYTicks); ok {
		names = legend(d.lines)
	}
	down := 0.0 // how far the plot moves down to make room for more rows of names
	if len(names) > 0 {
		down = names[len(names)-1].y - svgLegend
	}
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-label="%s">`,
		svgWidth, svgHeight+down, escape(p.Title))
	d.add(`<style>%s</style>`, svgStyle)
	d.text(svgLeft, 24, "text title", "start", p.Title)
	for i, n := range names {
		d.add(`<line class="s%d line" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, i%svgColours, n.x, n.x+20, n.y-4.5, n.y-4.5)
		d.text(n.x+27, n.y, "text", "start", n.name)
	}
	d.add(`<g transform="translate(0 %g)">`, down)
	if ok {
		d.axes()
		d.curves()
	} else {
		d.text((svgLeft+svgRight)/2, (svgTop+svgBottom)/2, "text", "middle", noPoints)
	}
	d.text((svgLeft+svgRight)/2, svgHeight-12, "text", "middle", p.XLabel)
	middle := (svgTop + svgBottom) / 2
	d.add(`<g transform="rotate(-90 16 %g)">`, middle)
	d.text(16, middle, "text", "middle", p.YLabel)
	d.add(`</g>`)
	d.add(`</g>`)
	d.add(`</svg>`)
	return []byte(d.out.String())
}

// entry is a name of the legend and where it stands.
type entry struct {
	name string
	x, y float64
}

// legend arranges the names of several lines in rows, none wider than the plot.
func legend(lines []line) []entry {
	if len(lines) < 2 {
		return nil
	}
	var out []entry
	x, y := svgLeft, svgLegend
	for _, l := range lines {
		width := 27 + svgCharacter*float64(len([]rune(l.name)))
		if x > svgLeft && x+width > svgRight {
			x, y = svgLeft, y+svgRow
		}
		out = append(out, entry{l.name, x, y})
		x += width + 24
	}
	return out
}

type drawing struct {
	lines []line
	x, y  scale
	out   strings.Builder
}

func (d *drawing) add(format string, arguments ...any) {
	fmt.Fprintf(&d.out, format+"\n", arguments...)
}

func (d *drawing) text(x, y float64, class, anchor, text string) {
	if text != "" {
		d.add(`<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, escape(text))
	}
}

func (d *drawing) place(p Point) (x, y float64) {
	return svgLeft + d.x.at(p.X)*(svgRight-svgLeft), svgBottom - d.y.at(p.Y)*(svgBottom-svgTop)
}

func (d *drawing) axes() {
	for i := range d.y.count {
		_, y := d.place(Point{d.x.low, d.y.tick(i)})
		d.add(`<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, svgLeft, svgRight, y, y)
		d.text(svgLeft-10, y+4.5, "text", "end", d.y.label(i))
	}
	for i := range d.x.count {
		x, _ := d.place(Point{d.x.tick(i), d.y.low})
		d.add(`<line class="axis" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, x, x, svgBottom, svgBottom+5)
		d.text(x, svgBottom+21, "text", "middle", d.x.label(i))
	}
	d.add(`<line class="axis" x1="%g" x2="%g" y1="%g" y2="%g"/>`, svgLeft, svgRight, svgBottom, svgBottom)
}

func (d *drawing) curves() {
	for i, l := range d.lines {
		class := fmt.Sprintf("s%d", i%svgColours)
		for _, piece := range l.pieces {
			path := d.path(piece)
			if len(d.lines) == 1 && len(piece) > 1 {
				// If there is only one curve, the area below it is filled.
				from, _ := d.place(piece[0])
				to, _ := d.place(piece[len(piece)-1])
				d.add(`<path class="%s area" d="%sL%.1f %gL%.1f %gZ"/>`, class, path, to, svgBottom, from, svgBottom)
			}
			d.add(`<path class="%s line" d="%s"/>`, class, path)
		}
		points := l.points()
		for _, p := range points {
			if len(points) <= svgPointsUntil {
				x, y := d.place(p)
				d.add(`<circle class="%s dot" cx="%.1f" cy="%.1f" r="3"/>`, class, x, y)
			}
		}
	}
}

// path moves to the first point and draws lines to the others.
func (d *drawing) path(piece []Point) string {
	var b strings.Builder
	command := "M"
	for _, p := range piece {
		x, y := d.place(p)
		fmt.Fprintf(&b, "%s%.1f %.1f", command, x, y)
		command = "L"
	}
	return b.String()
}

// escape makes text safe between tags and in attributes. It removes what XML cannot
// represent.
func escape(text string) string {
	return html.EscapeString(printable(strings.ToValidUTF8(text, "")))
}

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
