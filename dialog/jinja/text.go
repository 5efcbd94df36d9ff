package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// str is Python's str: what a template writes of a value.
func (r *run) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case *undefined:
		return ""
	}
	w := representation{run: r}
	w.write(v, 0)
	return w.String()
}

// representation is the text of Python's repr.
type representation struct {
	strings.Builder
	run *run
}

func (w *representation) add(s string) {
	w.run.make(len(s))
	w.WriteString(s)
}

func (w *representation) write(v any, depth int) {
	w.run.step(1)
	w.run.deep(depth)
	switch v := v.(type) {
	case none:
		w.add("None")
	case bool:
		w.add(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		w.add(strconv.FormatInt(v, 10))
	case *big.Int:
		w.add(v.String())
	case float64:
		w.add(floatText(v))
	case string:
		w.quote(v)
	case *undefined:
		w.add("Undefined")
	case *list:
		w.items("[", "]", v.items, depth)
	case *tuple:
		closing := ")"
		if len(v.items) == 1 {
			closing = ",)"
		}
		w.items("(", closing, v.items, depth)
	case *dict:
		w.dict(v, depth)
	case *interval:
		w.add(fmt.Sprintf("range(%d, %d", v.start, v.stop))
		if v.step != 1 {
			w.add(fmt.Sprintf(", %d", v.step))
		}
		w.add(")")
	default:
		w.run.refuse("the text of a %s", typeName(v))
	}
}

func (w *representation) items(opening, closing string, items []any, depth int) {
	w.add(opening)
	for i, one := range items {
		if i > 0 {
			w.add(", ")
		}
		w.write(one, depth+1)
	}
	w.add(closing)
}

func (w *representation) dict(d *dict, depth int) {
	w.add("{")
	for i, key := range d.keys {
		if i > 0 {
			w.add(", ")
		}
		w.write(key, depth+1)
		w.add(": ")
		w.write(d.values[i], depth+1)
	}
	w.add("}")
}

// deep checks how deep lists and objects are nested.
func (r *run) deep(depth int) {
	if depth > deepestSet {
		fail(ErrLimit, r.pos, "lists and objects nest deeper than %d", deepestSet)
	}
}

// quote writes a string as Python's repr does.
func (w *representation) quote(s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	w.run.step(len(s) / 8)
	var b strings.Builder
	b.WriteRune(quote)
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			b.WriteRune('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteRune(quote)
	w.add(b.String())
}

// floatText is Python's repr of a float.
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
