package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// filterOf is the filter of a name, or nil.
func filterOf(name string) applied {
	switch name {
	case "default", "d":
		return (*run).filterDefault
	case "length", "count":
		return func(r *run, v any, a actual) any { r.bind("length", a); return r.length(v) }
	case "string":
		return func(r *run, v any, a actual) any { r.bind("string", a); return r.soft(v) }
	case "safe":
		return func(r *run, v any, a actual) any { r.bind("safe", a); return markup(r.str(v)) }
	case "trim":
		return (*run).filterTrim
	case "upper", "lower", "capitalize", "title":
		return func(r *run, v any, a actual) any { r.bind(name, a); return r.recase(name, v) }
	case "replace":
		return (*run).filterReplace
	case "indent":
		return (*run).filterIndent
	case "tojson":
		return (*run).filterJSON
	case "int":
		return (*run).filterInt
	case "float":
		return (*run).filterFloat
	case "abs":
		return (*run).filterAbs
	case "round":
		return (*run).filterRound
	}
	return collectionFilterOf(name)
}

func (r *run) filterDefault(v any, a actual) any {
	args := r.bind("default", a, "default_value?", "boolean?")
	_, undefined := v.(*undefined)
	if !undefined && (!r.optional(args[1]) || r.truth(v)) {
		return v
	}
	if args[0] == nil {
		return ""
	}
	return args[0]
}

// soft is str, but leaves a string that is marked as safe what it is.
func (r *run) soft(v any) any {
	if m, is := v.(markup); is {
		return m
	}
	return r.str(v)
}

// softText is soft where only plain text goes on.
func (r *run) softText(what string, v any) string {
	if _, is := v.(markup); is {
		r.refuse("%s of a string that is marked as safe", what)
	}
	return r.str(v)
}

func (r *run) filterTrim(v any, a actual) any {
	args := r.bind("trim", a, "chars?")
	return r.strip("strip", r.softText("trim", v), args[0])
}

func (r *run) recase(name string, v any) any {
	s := r.softText(name, v)
	switch name {
	case "upper":
		return r.upper(s)
	case "lower":
		return r.lower(s)
	case "capitalize":
		return r.capitalize(s)
	}
	return r.titleFilter(s)
}

func (r *run) filterReplace(v any, a actual) any {
	args := r.bind("replace", a, "old", "new", "count?")
	count := int64(-1)
	if args[2] != nil && args[2] != any(none{}) {
		count = r.whole("replace", args[2], -1)
	}
	return r.replace(r.str(v), r.str(args[0]), r.str(args[1]), count)
}

// filterIndent puts space before each line but the first; before empty lines and
// the first it does so on demand.
func (r *run) filterIndent(v any, a actual) any {
	args := r.bind("indent", a, "width?", "first?", "blank?")
	by := "    "
	if s, is := args[0].(string); is {
		by = s
	} else if args[0] != nil {
		n := r.whole("indent", args[0], 0)
		r.make(int(min(max(n, 0), mostBytes)))
		by = strings.Repeat(" ", int(max(n, 0)))
	}
	lines := splitLines(r.text("indent", v)+"\n", false)
	r.make(len(v.(string)) + len(by)*len(lines))
	r.step(len(lines))
	for i, line := range lines {
		if i == 0 && r.optional(args[1]) || i > 0 && (line != "" || r.optional(args[2])) {
			lines[i] = by + line
		}
	}
	return strings.Join(lines, "\n")
}

// filterInt is Python's int of numbers and of decimal text; what is none of them
// becomes the default.
func (r *run) filterInt(v any, a actual) any {
	args := r.bind("int", a, "default?", "base?")
	if args[1] != nil {
		r.refuse("int with a base")
	}
	switch n := toNumber(v).(type) {
	case int64, *big.Int:
		return n
	case float64:
		return r.truncate(n)
	}
	if s, is := v.(string); is {
		s = strings.TrimFunc(s, isSpace)
		if i, ok := new(big.Int).SetString(s, 10); ok {
			return whole64(i)
		}
		if f, ok := r.parseFloat(s); ok {
			return r.truncate(f)
		}
	} else if m, is := v.(markup); is {
		r.refuse("int of %q, which is marked as safe", string(m))
	} else if u, is := v.(*undefined); is {
		r.undefined(u)
	}
	if args[0] == nil {
		return int64(0)
	}
	return args[0]
}

func (r *run) truncate(f float64) any {
	i, _ := big.NewFloat(f).Int(nil)
	return whole64(i)
}

// parseFloat reads the plainest decimal numbers. Of what else Python might take for
// a number it refuses all that has a digit or is a name of infinity.
func (r *run) parseFloat(s string) (float64, bool) {
	plain := s != "" && strings.Trim(s, "0123456789.eE+-") == ""
	if f, err := strconv.ParseFloat(s, 64); plain && err == nil {
		return f, true
	}
	low := strings.ToLower(s)
	if strings.ContainsAny(s, "0123456789") && !plain || !isASCII(s) || strings.Contains(low, "inf") || strings.Contains(low, "nan") {
		if strings.ContainsAny(strings.Trim(low, "0123456789_.e+-infaty"), "bcdghjklmopqrsuvwxz") {
			return 0, false
		}
		r.refuse("%.40q as a number", s)
	}
	return 0, false
}

func (r *run) filterFloat(v any, a actual) any {
	args := r.bind("float", a, "default?")
	if n := toNumber(v); n != nil {
		return r.toFloat(n)
	}
	switch v := v.(type) {
	case string:
		if f, ok := r.parseFloat(strings.TrimFunc(v, isSpace)); ok {
			return f
		}
	case *undefined:
		r.undefined(v)
	}
	if args[0] == nil {
		return 0.0
	}
	return args[0]
}

func (r *run) filterAbs(v any, a actual) any {
	r.bind("abs", a)
	switch n := toNumber(v).(type) {
	case int64:
		if n < 0 {
			return r.integers("-", 0, n)
		}
		return n
	case float64:
		return math.Abs(n)
	}
	r.wrong("abs of a %s", typeName(v))
	return nil
}

// filterRound rounds to the nearest, to even where two are near.
func (r *run) filterRound(v any, a actual) any {
	args := r.bind("round", a, "precision?", "method?")
	if args[1] != nil && args[1] != any("common") {
		r.refuse("round with a method")
	}
	digits := r.whole("round", args[0], 0)
	f, is := toNumber(v).(float64)
	if !is || digits < 0 || digits > 20 {
		r.refuse("round of a %s to %d digits", typeName(v), digits)
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(digits), 64), 64)
	return rounded
}
