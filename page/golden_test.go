package page_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/fulgurite/fulgurite/internal/golden"
)

// screens are pages whose words a golden file holds. A test gets its pages through it and asserts
// their numbers and addresses itself.
type screens struct {
	t    testing.TB
	text strings.Builder
}

// goldenOf returns screens that are compared with testdata/golden/NAME.txt when the test ends.
func goldenOf(t testing.TB, name string) *screens {
	t.Helper()
	s := &screens{t: t}
	t.Cleanup(func() {
		if !t.Failed() {
			golden.Compare(t, name, s.text.String())
		}
	})
	return s
}

// get fetches the page at a path and keeps the lines that no page of the ordinary run has, so that
// a word of an ordinary page is only in the golden file of that page.
func (s *screens) get(at, path string) string {
	s.t.Helper()
	body, reply := get(s.t, at+path)
	require.Equal(s.t, http.StatusOK, reply.StatusCode, path)
	s.add(path, body)
	return body
}

// add keeps a page that was not fetched by a path alone.
func (s *screens) add(title, body string) {
	s.t.Helper()
	fmt.Fprintf(&s.text, "==== %s\n", title)
	known := ordinary(s.t)
	for _, line := range view(s.t, body) {
		if !known[line] {
			s.text.WriteString(line + "\n")
		}
	}
}

// ordinaryLines is filled once for all tests.
var ordinaryLines struct {
	sync.Once
	lines map[string]bool
}

// ordinary returns the lines of the pages that TestEveryPageOfARunIsShown compares as wholes.
func ordinary(t testing.TB) map[string]bool {
	t.Helper()
	ordinaryLines.Do(func() {
		ordinaryLines.lines = map[string]bool{}
		server := newRecorded(t, "plain").serve(nil)
		for path := range ordinaryPages {
			body, _ := get(t, server.URL+path)
			for _, line := range view(t, body) {
				ordinaryLines.lines[line] = true
			}
		}
	})
	return ordinaryLines.lines
}

// blocks are the elements that begin a line in a view, and what stands before their text.
var blocks = map[string]string{
	"h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "p": "", "li": "- ", "tr": "| ", "div": "", "section": "", "summary": "> ", "dl": "", "form": "", "pre": "",
	"header": "", "article": "", "nav": "", "ol": "", "ul": "", "table": "", "details": "", "figure": "", "figcaption": "", "main": "", "svg": "", "g": "", "caption": "", "label": "", "fieldset": "",
}

// view returns what a person sees of a page, without what all pages have, by lines: one for each
// block, with the cells of tables, the targets of links, and what is said to those who point at
// something or listen.
func view(t testing.TB, body string) []string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	require.NoError(t, err)
	for n := range root.Descendants() {
		if n.Data == "main" {
			root = n
			break
		}
	}
	var b strings.Builder
	write(&b, root, false)
	var lines []string
	for _, line := range strings.Split(golden.Steady(b.String()), "\n") {
		if line = strings.Join(strings.Fields(line), " "); strings.Trim(line, "|>-+=# ") != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// write writes an element as view does. A row of a table is one line, whatever is in its cells.
func write(b *strings.Builder, n *html.Node, inRow bool) {
	before, block := blocks[n.Data]
	block = block && !inRow
	switch {
	case n.Type == html.TextNode:
		b.WriteString(strings.ReplaceAll(n.Data, "\n", " "))
		return
	case n.Type != html.ElementNode, n.Data == "script", n.Data == "style":
		return
	case n.Data == "title" && attribute(n.Parent, "aria-label") != "": // which says the same
		return
	case block:
		b.WriteString("\n" + before)
	case n.Data == "a":
		b.WriteString(" [")
	case n.Data == "title":
		b.WriteString(" (")
	default:
		b.WriteString(" ")
	}
	for _, key := range []string{"aria-label", "title", "placeholder"} {
		if label := attribute(n, key); label != "" {
			b.WriteString("(" + label + ") ")
		}
	}
	for child := range n.ChildNodes() {
		write(b, child, inRow || n.Data == "tr")
	}
	switch {
	case block:
		b.WriteString("\n")
	case n.Data == "a":
		b.WriteString("](" + attribute(n, "href") + ") ")
	case n.Data == "title":
		b.WriteString(") ")
	case n.Data == "td", n.Data == "th":
		b.WriteString(" | ")
	default:
		b.WriteString(" ")
	}
}

// attribute returns the value of an element's attribute, or "".
func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}
