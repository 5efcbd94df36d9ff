package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// str implements Python's str, which is the output of a value in a template.
func (r *run) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case *undefined:
		return ""
	}
	w := writer{run: r, between: ", ", colon: ": "}
	w.write(v, 0)
	return w.String()
}

// filterJSON implements tojson as transformers defines it: Python's json.dumps, which
// keeps the order of keys and escapes nothing for HTML.
func (r *run) filterJSON(v any, args []any) any {
	w := &writer{run: r, json: true, ascii: r.optional(args[0]), sorted: r.optional(args[3]), between: ", ", colon: ": "}
	if !omitted(args[1]) {
		indent, ok := args[1].(string)
		if !ok {
			n := r.whole("tojson", args[1], 0)
			if n > deepestSet {
				r.refuse("tojson with an indent of %d", n)
			}
			indent = strings.Repeat(" ", int(max(n, 0)))
		}
		w.lines, w.indent, w.between = true, indent, ","
	}
	if !omitted(args[2]) {
		both := r.all(args[2])
		if len(both) != 2 {
			r.wrong("tojson needs two separators")
		}
		w.between, w.colon = r.text("tojson", both[0]), r.text("tojson", both[1])
	}
	w.write(v, 0)
	return w.String()
}

// writer writes values as Python's repr does. If json is true, it writes them as its
// json.dumps does.
type writer struct {
	strings.Builder
	run            *run
	json           bool
	ascii, sorted  bool
	lines          bool
	indent         string
	between, colon string
}

func (w *writer) add(s string) {
	w.run.make(len(s))
	w.WriteString(s)
}

// word adds the name of a value: repr or, in JSON, json.
func (w *writer) word(repr, json string) {
	if w.json {
		repr = json
	}
	w.add(repr)
}

func (w *writer) write(v any, depth int) {
	w.run.step(1)
	w.run.deep(depth)
	switch v := v.(type) {
	case none:
		w.word("None", "null")
	case bool:
		w.word(map[bool]string{true: "True", false: "False"}[v], strconv.FormatBool(v))
	case int64:
		w.add(strconv.FormatInt(v, 10))
	case *big.Int:
		w.add(v.String())
	case float64:
		w.add(floatText(v))
	case string:
		w.quote(v)
	case *list:
		w.list(v, depth)
	case *dict:
		w.dict(v, depth)
	case markup:
		if !w.json {
			w.run.refuse("the text of a %s", typeName(v))
		}
		w.quote(string(v))
	case *undefined:
		if w.json {
			w.run.wrong("tojson of %s, which is undefined", v.what)
		}
		w.add("Undefined")
	case missing:
		if w.json {
			w.run.wrong("tojson of a variable without a value")
		}
		w.add("missing")
	default:
		if w.json {
			w.run.wrong("tojson of a %s", typeName(v))
		}
		w.run.refuse("the text of a %s", typeName(v))
	}
}

func (w *writer) list(l *list, depth int) {
	opening, closing := "[", "]"
	switch {
	case l.kind == listKind, l.kind == tupleKind && w.json:
	case l.kind == tupleKind:
		if opening, closing = "(", ")"; len(l.items) == 1 {
			closing = ",)"
		}
	case w.json:
		w.run.wrong("tojson of a %s", l.kind)
	case l.isView():
		w.run.refuse("the text of a %s", l.kind)
	default:
		w.add(l.text)
		return
	}
	w.items(opening, closing, len(l.items), depth, func(i int) { w.write(l.items[i], depth+1) })
}

func (w *writer) dict(d *dict, depth int) {
	keys := d.keys
	if w.sorted {
		keys = slices.SortedStableFunc(slices.Values(keys), func(a, b any) int { return w.run.order("<", a, b, 0) })
	}
	w.items("{", "}", len(keys), depth, func(i int) {
		if w.json {
			w.quote(w.run.str(keys[i]))
		} else {
			w.write(keys[i], depth+1)
		}
		w.add(w.colon)
		v, _ := d.get(keys[i])
		w.write(v, depth+1)
	})
}

// items writes n items. If lines is set, each item has its own line.
func (w *writer) items(opening, closing string, n, depth int, item func(i int)) {
	w.add(opening)
	for i := range n {
		if i > 0 {
			w.add(w.between)
		}
		w.line(depth + 1)
		item(i)
	}
	if n > 0 {
		w.line(depth)
	}
	w.add(closing)
}

func (w *writer) line(depth int) {
	if w.lines {
		w.add("\n")
		w.add(strings.Repeat(w.indent, depth))
	}
}

func (w *writer) quote(s string) {
	w.run.step(len(s) / 8)
	w.run.make(len(s) + 2)
	quote, plain := '"', func(c rune) bool { return c >= 0x20 && (!w.ascii || c < 0x7f) }
	if !w.json {
		plain = unicode.IsPrint
		if quote = '\''; strings.Contains(w.run.bare(s), "'") && !strings.Contains(w.run.bare(s), `"`) {
			quote = '"'
		}
	}
	w.WriteRune(quote)
	from := 0
	for i, c := range s {
		shown := w.run.character(c)
		if plain(shown) && shown != quote && shown != '\\' {
			continue
		}
		w.WriteString(s[from:i])
		from = i + utf8.RuneLen(c)
		w.escape(shown)
	}
	w.WriteString(s[from:])
	w.WriteRune(quote)
}

func (w *writer) escape(c rune) {
	short := "\\\\''\"\"\nn\rr\tt"
	if w.json {
		short += "\ff\bb"
	}
	i := strings.IndexRune(short, c)
	high, low := utf16.EncodeRune(c)
	switch {
	case i >= 0:
		w.add(`\` + short[i+1:i+2])
	case w.json && c > 0xffff:
		w.add(fmt.Sprintf(`\u%04x\u%04x`, high, low))
	case c > 0xffff:
		w.add(fmt.Sprintf(`\U%08x`, c))
	case !w.json && c < 0x100:
		w.add(fmt.Sprintf(`\x%02x`, c))
	default:
		w.add(fmt.Sprintf(`\u%04x`, c))
	}
}

// floatText implements Python's repr of a float.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	e, _ := strconv.Atoi(exponent)
	if e < -4 || e >= 16 {
		return fmt.Sprintf("%se%+03d", mantissa, e)
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
