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

// format is Python's s.format for fields that are empty, a number or a name.
func (r *run) format(s string, a actual) string {
	var b strings.Builder
	add := func(part string) {
		r.make(len(part))
		b.WriteString(part)
	}
	for count := 0; s != ""; {
		at := strings.IndexAny(s, "{}")
		if at < 0 {
			add(s)
			break
		}
		add(s[:at])
		if strings.HasPrefix(s[at+1:], s[at:at+1]) {
			add(s[at : at+1])
			s = s[at+2:]
			continue
		}
		length := strings.IndexByte(s[at:], '}')
		if s[at] == '}' || length < 0 {
			r.wrong("format with a single %c", s[at])
		}
		field := s[at+1 : at+length]
		s = s[at+length+1:]
		if field == "" {
			field = strconv.Itoa(count)
			count++
		} else if count > 0 && isDecimal(field[0]) {
			r.wrong("format with fields that have numbers and fields that have none")
		}
		add(r.str(r.field(field, a)))
	}
	return b.String()
}

func (r *run) field(field string, a actual) any {
	if strings.ContainsAny(field, "{.[!:") {
		r.refuse("format with the field {%s}", field)
	}
	if i, err := strconv.Atoi(field); err == nil {
		if i < 0 || i >= len(a.positional) {
			r.wrong("format has no argument %d", i)
		}
		return a.positional[i]
	}
	v := a.take(field)
	if v == nil {
		r.wrong("format has no argument %s", field)
	}
	return v
}

// upper is Python's str.upper. Letters that it would make more than one character
// of are refused.
func (r *run) upper(s string) string {
	r.letters(s)
	return strings.ToUpper(s)
}

func (r *run) lower(s string) string {
	r.letters(s)
	return strings.ToLower(s)
}

// letters refuses what has no simple upper or lower case.
func (r *run) letters(s string) {
	r.make(len(s))
	r.step(len(s) / 32)
	if isASCII(s) {
		return
	}
	for _, c := range s {
		if hasSpecialCase(c) {
			r.refuse("the upper or lower case of %q", c)
		}
	}
}

// hasSpecialCase says whether Unicode's SpecialCasing names a character for all
// languages.
func hasSpecialCase(c rune) bool {
	switch {
	case c < 0x80:
		return false
	case c == 0xdf, c == 0x130, c == 0x149, c == 0x1f0, c == 0x390, c == 0x3b0, c == 0x3a3, c == 0x587:
		return true
	case c >= 0x1e96 && c <= 0x1e9e, c >= 0x1f50 && c <= 0x1f57, c >= 0x1f80 && c <= 0x1fff:
		return true
	}
	return c >= 0xfb00 && c <= 0xfb17
}

// plainLetters refuses what is not ASCII.
func (r *run) plainLetters(what, s string) string {
	r.make(len(s))
	r.step(len(s) / 32)
	if !isASCII(s) {
		r.refuse("%s of letters beyond ASCII", what)
	}
	return s
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// capitalize is Python's str.capitalize.
func (r *run) capitalize(s string) string {
	s = strings.ToLower(r.plainLetters("capitalize", s))
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// title is Python's str.title: a letter is large if no letter is before it.
func (r *run) title(s string) string {
	b := []byte(strings.ToLower(r.plainLetters("title", s)))
	for i, c := range b {
		if isLetter(c) && (i == 0 || !isLetter(b[i-1])) {
			b[i] = c &^ 0x20
		}
	}
	return string(b)
}

// titleFilter is Jinja's filter title: a letter is large at the begin and behind
// white space and - ( { [ <.
func (r *run) titleFilter(s string) string {
	b := []byte(strings.ToLower(r.plainLetters("title", s)))
	for i, c := range b {
		if isLetter(c) && (i == 0 || strings.IndexByte("-({[<", b[i-1]) >= 0 || isSpace(rune(b[i-1]))) {
			b[i] = c &^ 0x20
		}
	}
	return string(b)
}

// kindOf answers isalpha, isdigit, … and the tests lower and upper.
func (r *run) kindOf(method, s string) bool {
	r.step(len(s) / 16)
	switch method {
	case "isascii":
		return isASCII(s)
	case "isspace":
		return s != "" && strings.TrimLeftFunc(s, isSpace) == ""
	}
	if !isASCII(s) {
		r.refuse("%s of a string beyond ASCII", method)
	}
	letter := strings.ContainsFunc(s, unicode.IsLetter)
	none := func(is func(rune) bool) bool { return s != "" && !strings.ContainsFunc(s, is) }
	switch method {
	case "isalnum":
		return none(func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	case "isalpha":
		return none(func(c rune) bool { return !unicode.IsLetter(c) })
	case "isdigit":
		return none(func(c rune) bool { return !unicode.IsDigit(c) })
	case "islower":
		return letter && none(unicode.IsUpper)
	}
	return letter && none(unicode.IsLower) // isupper
}
