package chart

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// WriteText draws the plot as lines of text, each ended by a line feed.
func (p Plot) WriteText(w io.Writer, style Style) error {
	if _, err := io.WriteString(w, p.text(style.withDefaults())); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	return nil
}

// text lays the plot out: title, rows of the canvas with the y axis at their
// left, x axis, its labels, legend.
func (p Plot) text(style Style) string {
	t := textPlot{style: style, glyphs: style.glyphs(), lines: p.lines()}
	t.heading(p.Title, p.YLabel)
	if !t.body(p.XLabel) {
		t.add("  " + noPoints)
	}
	return t.out.String()
}

type textPlot struct {
	style  Style
	glyphs glyphs
	lines  []line
	out    strings.Builder
}

// add writes one line, cut to the width and without spaces at its end.
func (t *textPlot) add(text string) {
	t.out.WriteString(strings.TrimRight(cut(text, t.style.Width), " "))
	t.out.WriteByte('\n')
}

func (t *textPlot) heading(title, label string) {
	title, label = printable(title), printable(label)
	if title != "" && label != "" {
		title += " · "
		if !t.style.Unicode {
			title = strings.TrimSuffix(title, " · ") + " - "
		}
	}
	if title+label != "" {
		t.add("  " + title + label)
	}
}

func (t *textPlot) body(xLabel string) bool {
	legend := len(t.lines) > 1
	rows := t.style.Height - 4 // title, axis, its labels, the name of the axis
	if legend {
		rows--
	}
	x, y, ok := axes(t.lines, max(t.style.Width/12, 2), max(rows/3, 2))
	if !ok {
		return false
	}
	labels, gutter := y.labels()
	// Two spaces before the labels, one after, one axis; a label of the x axis may
	// reach beyond the canvas by half its width.
	columns := t.style.Width - gutter - 6
	c := newCanvas(columns, rows, t.braille())
	for i, l := range t.lines {
		c.draw(i+1, l, x, y)
	}
	t.rows(c, y, labels, gutter)
	t.xAxis(c, x, gutter, printable(xLabel))
	if legend {
		t.legend(gutter)
	}
	return true
}

// braille says whether cells show lines by their dots, which look alike for all
// series, or each series has its mark.
func (t *textPlot) braille() bool {
	return t.style.Unicode && (t.style.Colour || len(t.lines) == 1)
}

func (t *textPlot) rows(c *canvas, y scale, labels []string, gutter int) {
	atRow := make(map[int]string, len(labels))
	for i, label := range labels {
		atRow[c.row(y.tick(i), y)] = label
	}
	for row := range c.rows {
		axis := t.glyphs.vertical
		label, ok := atRow[row]
		if ok {
			axis = t.glyphs.tick
		}
		var b strings.Builder
		blank := 0
		for column := range c.columns {
			at := c.cells[row*c.columns+column]
			if at.series == 0 {
				blank++
				continue
			}
			b.WriteString(strings.Repeat(" ", blank))
			b.WriteString(t.mark(at))
			blank = 0
		}
		// Not through add: colours take bytes and no room.
		line := strings.TrimRight(fmt.Sprintf("  %*s %s%s", gutter, label, axis, b.String()), " ")
		t.out.WriteString(line + "\n")
	}
}

func (t *textPlot) mark(at cell) string {
	if t.braille() {
		return t.paint(string(0x2800+at.dots), at.series)
	}
	return t.paint(t.glyphs.series[(at.series-1)%len(t.glyphs.series)], at.series)
}

// paint gives text the colour of a series: cyan, yellow, green, magenta, red and
// blue, all legible on black and on white.
func (t *textPlot) paint(text string, series int) string {
	if !t.style.Colour {
		return text
	}
	colours := [...]int{36, 33, 32, 35, 31, 34}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colours[(series-1)%len(colours)], text)
}

func (t *textPlot) xAxis(c *canvas, x scale, gutter int, name string) {
	axis := make([]string, c.columns)
	for i := range axis {
		axis[i] = t.glyphs.horizontal
	}
	labels := []rune(strings.Repeat(" ", t.style.Width))
	left, free := gutter+4, 0
	for i := range x.count {
		column := c.column(x.tick(i), x)
		axis[column] = t.glyphs.mark
		label := []rune(x.label(i))
		at := left + column - len(label)/2
		if at < free || at+len(label) > len(labels) {
			continue // it would touch its neighbour
		}
		copy(labels[at:], label)
		free = at + len(label) + 1
	}
	t.add(strings.Repeat(" ", gutter+3) + t.glyphs.corner + strings.Join(axis, ""))
	t.add(string(labels))
	if name != "" {
		t.add(strings.Repeat(" ", max(left+(c.columns-utf8.RuneCountInString(name))/2, 0)) + name)
	}
}

func (t *textPlot) legend(gutter int) {
	text, width := strings.Repeat(" ", gutter+4), gutter+4
	for i, l := range t.lines {
		mark := t.glyphs.series[i%len(t.glyphs.series)]
		if t.braille() {
			mark = "━━"
		}
		room := t.style.Width - width - utf8.RuneCountInString(mark) - 1
		name := cut(l.name, room)
		if room <= 0 || name == "" && l.name != "" {
			break
		}
		text += t.paint(mark, i+1) + " " + name + "   "
		width += utf8.RuneCountInString(mark+name) + 4
	}
	t.out.WriteString(strings.TrimRight(text, " ") + "\n")
}

// cut keeps the first characters of a text, as many as there is room for.
func cut(text string, room int) string {
	if utf8.RuneCountInString(text) <= room {
		return text
	}
	return string([]rune(text)[:max(room, 0)])
}
