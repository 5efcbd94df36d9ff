package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// valueFilters returns the filters of texts and numbers.
func valueFilters() definitions {
	return definitions{
		"default d":    {"default_value? boolean?", (*run).filterDefault},
		"length count": {"", func(r *run, v any, _ []any) any { return r.length(v) }},
		"string": {"", func(r *run, v any, _ []any) any {
			if m, ok := v.(markup); ok {
				return m
			}
			return r.str(v)
		}},
		"safe":       {"", func(r *run, v any, _ []any) any { return markup(r.str(v)) }},
		"upper":      {"", func(r *run, v any, _ []any) any { return r.upper(r.softText("upper", v)) }},
		"lower":      {"", func(r *run, v any, _ []any) any { return r.lower(r.softText("lower", v)) }},
		"capitalize": {"", func(r *run, v any, _ []any) any { return r.capitalize(r.softText("capitalize", v)) }},
		"title": {"", func(r *run, v any, _ []any) any {
			return r.title(r.softText("title", v), func(before byte) bool {
				return strings.IndexByte("-({[<", before) >= 0 || isSpace(rune(before))
			})
		}},
		"trim": {"chars?", func(r *run, v any, args []any) any { return r.strip("strip", r.softText("trim", v), args[0]) }},
		"replace": {"old new count?", func(r *run, v any, args []any) any {
			count := int64(-1)
			if !omitted(args[2]) {
				count = r.whole("replace", args[2], -1)
			}
			return r.replace(r.str(v), r.str(args[0]), r.str(args[1]), count)
		}},
		"indent": {"width? first? blank?", (*run).filterIndent},
		"tojson": {"ensure_ascii? indent? separators? sort_keys?", (*run).filterJSON},
		"int":    {"default? base?", (*run).filterInt},
		"float":  {"default?", (*run).filterFloat},
		"abs":    {"", (*run).filterAbs},
		"round":  {"precision? method?", (*run).filterRound},
	}
}

func (r *run) filterDefault(v any, args []any) any {
	_, undefined := v.(*undefined)
	if !undefined && (!r.optional(args[1]) || r.truth(v)) {
		return v
	}
	return otherwise(args[0], "")
}

// otherwise returns an argument, or v if the argument was left out.
func otherwise(argument, v any) any {
	if argument == nil {
		return v
	}
	return argument
}

// softText returns str of a value, and refuses a string that is marked as safe.
func (r *run) softText(what string, v any) string {
	if _, ok := v.(markup); ok {
		r.refuse("%s of a string that is marked as safe", what)
	}
	return r.str(v)
}

// filterIndent puts space before each line but the first. Arguments ask for space before
// the first line and before empty lines, too.
func (r *run) filterIndent(v any, args []any) any {
	by, ok := args[0].(string)
	if !ok {
		n := r.whole("indent", args[0], 4)
		r.make(int(min(max(n, 0), maxBytes)))
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

// filterInt returns Python's int of a number or of decimal text, and the default for any
// other value.
func (r *run) filterInt(v any, args []any) any {
	if args[1] != nil {
		r.refuse("int with a base")
	}
	switch v := v.(type) {
	case bool, int64, *big.Int:
		return toNumber(v)
	case float64:
		return truncate(v)
	case string:
		s := strings.TrimFunc(r.bare(v), isSpace)
		if i, ok := new(big.Int).SetString(s, 10); ok {
			return whole64(i)
		}
		if f, ok := r.parseFloat(s); ok {
			return truncate(f)
		}
	case markup:
		r.refuse("int of %q, which is marked as safe", string(v))
	case *undefined:
		r.undefined(v)
	}
	return otherwise(args[0], int64(0))
}

func truncate(f float64) any {
	i, _ := big.NewFloat(f).Int(nil)
	return whole64(i)
}

// parseFloat reads decimal numbers in their plainest form. Python takes more texts for
// numbers: parseFloat refuses every other text that has a digit or is a name of infinity.
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

func (r *run) filterFloat(v any, args []any) any {
	if n := toNumber(v); n != nil {
		return r.toFloat(n)
	}
	switch v := v.(type) {
	case string:
		if f, ok := r.parseFloat(strings.TrimFunc(r.bare(v), isSpace)); ok {
			return f
		}
	case *undefined:
		r.undefined(v)
	}
	return otherwise(args[0], 0.0)
}

func (r *run) filterAbs(v any, _ []any) any {
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

// filterRound rounds to the nearest number, and to the even one if two are equally near.
func (r *run) filterRound(v any, args []any) any {
	if args[1] != nil && args[1] != any("common") {
		r.refuse("round with a method")
	}
	digits := r.whole("round", args[0], 0)
	f, ok := toNumber(v).(float64)
	if !ok || digits < 0 || digits > 20 {
		r.refuse("round of a %s to %d digits", typeName(v), digits)
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(digits), 64), 64)
	return rounded
}
