package chart

import (
	"os"
	"strings"

	"github.com/guptarohit/asciigraph"
	"golang.org/x/term"
)

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
