package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// isGlobal says whether every template sees a function of this name.
func isGlobal(name string) bool {
	switch name {
	case "range", "dict", "namespace", "raise_exception", "strftime_now", "lipsum", "cycler", "joiner":
		return true
	}
	return false
}

// longestRange is that of Jinja's sandbox.
const longestRange = 100_000

// builtin calls a global function.
func (r *run) builtin(name string, a actual) any {
	switch name {
	case "range":
		return r.newRange(a)
	case "namespace":
		return &namespace{*r.newDict("namespace", a)}
	case "dict":
		return r.newDict("dict", a)
	case "raise_exception":
		message := r.bind(name, a, "message")[0]
		fail(ErrRaised, r.pos, "%s", r.str(message))
	case "strftime_now":
		return r.clock(r.text(name, r.bind(name, a, "format")[0]))
	}
	r.refuse("the function %s", name)
	return nil
}

func (r *run) newRange(a actual) any {
	args := r.bindPositional("range", a, "start", "stop?", "step?")
	for _, v := range args {
		if u, is := v.(*undefined); is {
			r.undefined(u)
		}
	}
	i := &interval{0, r.whole("range", args[0], 0), r.whole("range", args[2], 1)}
	if args[1] != nil {
		i.start, i.stop = i.stop, r.whole("range", args[1], 0)
	}
	const far = 1 << 53
	if i.start < -far || i.start > far || i.stop < -far || i.stop > far || i.step < -far || i.step > far {
		r.refuse("a range of integers beyond 53 bits")
	}
	if i.step == 0 {
		r.wrong("a range with step 0")
	}
	if i.len() > longestRange {
		r.wrong("a range of more than %d numbers", longestRange)
	}
	return i
}

// newDict makes an object of another one, or of pairs, and of named arguments.
func (r *run) newDict(what string, a actual) *dict {
	if len(a.positional) > 1 {
		r.wrong("%s gets %d arguments", what, len(a.positional))
	}
	d := &dict{}
	put := func(key, v any) {
		if name, is := key.(string); is && what == "namespace" && strings.HasPrefix(name, "_") {
			r.wrong("a namespace has no attribute that begins with an underscore: %s", name)
		}
		r.make(2 * valueSize)
		d.put(key, v)
	}
	if len(a.positional) == 1 {
		switch from := a.positional[0].(type) {
		case *dict:
			for i, key := range from.keys {
				put(key, from.values[i])
			}
		case *undefined:
		case *namespace, *closure, *loopContext:
			r.refuse("%s of a %s", what, typeName(from))
		default:
			for _, one := range r.all(from) {
				pair := r.all(one)
				if len(pair) != 2 {
					r.wrong("%s of a list whose items aren't pairs", what)
				}
				put(r.key(pair[0]), pair[1])
			}
		}
	}
	for _, one := range a.named {
		put(one.name, one.value)
	}
	return d
}

// clock is Python's strftime of the time that the caller gave, with English names.
func (r *run) clock(format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		if i == len(format) {
			r.refuse("a time format that ends with %%")
		}
		width := 2
		if format[i] == '-' && i+1 < len(format) && strings.IndexByte("dmHMSIyj", format[i+1]) >= 0 {
			width = 1
			i++
		}
		b.WriteString(r.clockPart(format[i], width))
	}
	return b.String()
}

func (r *run) clockPart(directive byte, width int) string {
	now := r.now
	number := func(n int) string { return fmt.Sprintf("%0*d", width, n) }
	switch directive {
	case '%':
		return "%"
	case 'd':
		return number(now.Day())
	case 'e':
		return fmt.Sprintf("%2d", now.Day())
	case 'm':
		return number(int(now.Month()))
	case 'y':
		return number(now.Year() % 100)
	case 'Y':
		return strconv.Itoa(now.Year())
	case 'H':
		return number(now.Hour())
	case 'I':
		return number((now.Hour()+11)%12 + 1)
	case 'M':
		return number(now.Minute())
	case 'S':
		return number(now.Second())
	case 'j':
		return fmt.Sprintf("%0*d", 2*width-1, now.YearDay())
	case 'z', 'Z':
		return "" // Python's now() knows no zone
	}
	if layout := (map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'p': "PM",
		'F': time.DateOnly, 'T': time.TimeOnly, 'R': "15:04", 'D': "01/02/06",
	})[directive]; layout != "" {
		return now.Format(layout)
	}
	r.refuse("the time directive %%%c", directive)
	return ""
}
