package jinja

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// filterJSON is tojson as transformers defines it: Python's json.dumps, which
// keeps the order of keys and escapes nothing for HTML.
func (r *run) filterJSON(v any, a actual) any {
	args := r.bind("tojson", a, "ensure_ascii?", "indent?", "separators?", "sort_keys?")
	w := &jsonWriter{run: r, ascii: r.optional(args[0]), sorted: r.optional(args[3]), between: ", ", colon: ": "}
	switch indent := args[1].(type) {
	case nil, none:
	case string:
		w.lines, w.indent, w.between = true, indent, ","
	default:
		n := r.whole("tojson", indent, 0)
		if n > deepestSet {
			r.refuse("tojson with an indent of %d", n)
		}
		w.lines, w.indent, w.between = true, strings.Repeat(" ", int(max(n, 0))), ","
	}
	if args[2] != nil && args[2] != any(none{}) {
		both := r.all(args[2])
		if len(both) != 2 {
			r.wrong("tojson needs two separators")
		}
		w.between, w.colon = r.text("tojson", both[0]), r.text("tojson", both[1])
	}
	w.write(v, 0)
	return w.String()
}

type jsonWriter struct {
	strings.Builder
	run            *run
	ascii, sorted  bool
	lines          bool
	indent         string
	between, colon string
}

func (w *jsonWriter) add(s string) {
	w.run.make(len(s))
	w.WriteString(s)
}

func (w *jsonWriter) write(v any, depth int) {
	w.run.step(1)
	w.run.deep(depth)
	switch v := v.(type) {
	case none:
		w.add("null")
	case bool:
		w.add(strconv.FormatBool(v))
	case int64:
		w.add(strconv.FormatInt(v, 10))
	case *big.Int:
		w.add(v.String())
	case float64:
		w.add(floatText(v))
	case string:
		w.quote(v)
	case markup:
		w.quote(string(v))
	case *list:
		w.array(v.items, depth)
	case *tuple:
		w.array(v.items, depth)
	case *dict:
		w.object(v, depth)
	default:
		w.run.wrong("tojson of a %s", typeName(v))
	}
}

func (w *jsonWriter) array(items []any, depth int) {
	if len(items) == 0 {
		w.add("[]")
		return
	}
	w.add("[")
	for i, one := range items {
		if i > 0 {
			w.add(w.between)
		}
		w.line(depth + 1)
		w.write(one, depth+1)
	}
	w.line(depth)
	w.add("]")
}

func (w *jsonWriter) object(d *dict, depth int) {
	if len(d.keys) == 0 {
		w.add("{}")
		return
	}
	keys := d.keys
	if w.sorted {
		keys = slices.SortedStableFunc(slices.Values(keys), func(a, b any) int { return w.run.order("<", a, b, 0) })
	}
	w.add("{")
	for i, key := range keys {
		if i > 0 {
			w.add(w.between)
		}
		w.line(depth + 1)
		w.quote(w.run.str(key))
		w.add(w.colon)
		v, _ := d.get(key)
		w.write(v, depth+1)
	}
	w.line(depth)
	w.add("}")
}

// line begins a line, if there are lines.
func (w *jsonWriter) line(depth int) {
	if w.lines {
		w.add("\n")
		w.add(strings.Repeat(w.indent, depth))
	}
}

func (w *jsonWriter) quote(s string) {
	w.run.step(len(s) / 32)
	w.run.make(len(s) + 2)
	w.WriteByte('"')
	from := 0
	for i, c := range s {
		if c != '"' && c != '\\' && c >= 0x20 && (!w.ascii || c < 0x7f) {
			continue
		}
		w.WriteString(s[from:i])
		from = i + utf8.RuneLen(c)
		w.escape(c)
	}
	w.WriteString(s[from:])
	w.WriteByte('"')
}

func (w *jsonWriter) escape(c rune) {
	const short, letters = "\"\\\n\r\t\f\b", `"\nrtfb`
	if i := strings.IndexRune(short, c); i >= 0 {
		w.add(`\` + letters[i:i+1])
		return
	}
	if c > 0xffff {
		high, low := utf16.EncodeRune(c)
		w.add(fmt.Sprintf(`\u%04x\u%04x`, high, low))
		return
	}
	w.add(fmt.Sprintf(`\u%04x`, c))
}
