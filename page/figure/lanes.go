package figure

import (
	"fmt"
	"html"
	"html/template"
	"time"
)

// The places of lanes in their own coordinates.
const (
	lanesWidth, lanesLeft = 900.0, 190.0
	// lanesName is the room for the name of a lane. A longer name ends there.
	lanesName  = lanesLeft - 10
	laneHeight = 24.0
	lanesTicks = 6
	// maxOfName is how many letters of a lane's name are drawn.
	maxOfName = 32
	// maxBars is how many bars of all lanes are drawn, the first ones.
	maxBars = 400
)

// Lane is a row of a time axis: what one agent did, or what happened to one run.
type Lane struct {
	Name string
	Bars []Bar
}

// Bar is something that took a time.
type Bar struct {
	From, To time.Time
	Class    string // of the page's style
	Text     string
	Path     string // where it leads, may be empty
}

// Lanes are rows over one time axis.
type Lanes struct {
	Title string
	Rows  []Lane
	// Clock writes the time of day below the axis rather than the time since its beginning.
	Clock bool
}

// Empty reports whether there is nothing to draw.
func (l Lanes) Empty() bool {
	for _, row := range l.Rows {
		if len(row.Bars) > 0 {
			return false
		}
	}
	return true
}

// Hidden returns how many bars are not drawn.
func (l Lanes) Hidden() int {
	n := 0
	for _, row := range l.Rows {
		n += len(row.Bars)
	}
	return max(0, n-maxBars)
}

// ends returns when the first bar begins and when the last one ends.
func (l Lanes) ends() (from, to time.Time) {
	for _, row := range l.Rows {
		for _, b := range row.Bars {
			if from.IsZero() || b.From.Before(from) {
				from = b.From
			}
			if b.To.After(to) {
				to = b.To
			}
		}
	}
	if !to.After(from) {
		to = from.Add(time.Millisecond)
	}
	return from, to
}

// SVG draws the lanes.
func (l Lanes) SVG() template.HTML {
	d := Drawing{}
	bottom := laneHeight * float64(len(l.Rows))
	d.Add(`<svg class="lanes" viewBox="0 0 %g %g" role="group" aria-label="%s">`, lanesWidth, bottom+20, html.EscapeString(l.Title))
	from, to := l.ends()
	all := to.Sub(from)
	at := func(t time.Time) float64 {
		return lanesLeft + float64(t.Sub(from))/float64(all)*(lanesWidth-lanesLeft-4)
	}
	for i := range lanesTicks {
		t := from.Add(all * time.Duration(i) / (lanesTicks - 1))
		d.Add(`<line class="grid" x1="%.1f" x2="%.1f" y1="0" y2="%g"/>`, at(t), at(t), bottom)
		anchor := "middle"
		switch i {
		case 0:
			anchor = "start"
		case lanesTicks - 1:
			anchor = "end"
		}
		d.Text(at(t), bottom+14, anchor, l.tick(t, from, all))
	}
	drawn := 0
	for i, row := range l.Rows {
		y := laneHeight * float64(i)
		d.name(row.Name, y)
		for _, b := range row.Bars {
			if drawn++; drawn > maxBars {
				break
			}
			d.bar(b, at(b.From), max(2, at(b.To)-at(b.From)), y)
		}
	}
	d.Add(`</svg>`)
	return template.HTML(d.String()) // all text in it is escaped
}

// name draws the name of a lane. An svg inside of another clips what is too wide for it,
// whatever the width of the letters is.
func (d *Drawing) name(text string, y float64) {
	d.Add(`<svg class="name" x="0" y="%g" width="%g" height="%g">`, y, lanesName, laneHeight)
	d.Add(`<title>%s</title>`, html.EscapeString(text))
	d.Text(0, 16, "start", shortened(text, maxOfName))
	d.Add(`</svg>`)
}

func (d *Drawing) bar(b Bar, x, width, y float64) {
	image := ""
	if b.Path == "" { // a link has its own name
		image = fmt.Sprintf(` role="img" aria-label="%s"`, html.EscapeString(b.Text))
	}
	rect := fmt.Sprintf(`<rect class="bar %s"%s x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2"><title>%s</title></rect>`,
		html.EscapeString(b.Class), image, x, y+4, width, laneHeight-8, html.EscapeString(b.Text))
	if b.Path != "" {
		rect = fmt.Sprintf(`<a href="%s" aria-label="%s">%s</a>`, html.EscapeString(b.Path), html.EscapeString(b.Text), rect)
	}
	d.WriteString(rect)
}

func (l Lanes) tick(t, from time.Time, all time.Duration) string {
	if l.Clock && all >= 10*time.Second {
		return t.Local().Format("15:04:05")
	}
	if l.Clock {
		return t.Local().Format("15:04:05.000")
	}
	since := t.Sub(from)
	switch {
	case all < 5*time.Millisecond:
		return fmt.Sprintf("%d µs", since.Microseconds())
	case all < 10*time.Second:
		return fmt.Sprintf("%d ms", since.Milliseconds())
	}
	return fmt.Sprintf("%.0f s", since.Seconds())
}

func shortened(text string, most int) string {
	letters := []rune(text)
	if len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return text
}
