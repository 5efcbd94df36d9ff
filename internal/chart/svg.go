package chart

import (
	"fmt"
	"html"
	"strings"
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
