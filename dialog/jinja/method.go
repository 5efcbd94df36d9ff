package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

func (r *run) dictMethod(d *dict, name string, a actual) any {
	if name != "get" {
		r.bind(name, a, "/")
		return r.view(d, name)
	}
	args := r.bind(name, a, "key", "default?", "/")
	if r.hasKey(d, args[0]) {
		key, _ := keyOf(args[0])
		v, _ := d.get(key)
		return v
	}
	return otherwise(args[1], none{})
}

func (r *run) listMethod(items []any, name string, a actual) any {
	v := r.bind(name, a, "value", "/")[0]
	n := int64(0)
	for i, one := range items {
		if !r.equal(one, v) {
			continue
		}
		if name == "index" {
			return int64(i)
		}
		n++
	}
	if name == "index" {
		r.wrong("the value is not in the list")
	}
	return n
}

// textMethods returns the methods of strings.
func textMethods() definitions {
	all := definitions{}
	add := func(names, parameters string, f func(r *run, name, s string, args []any) any) {
		for _, name := range strings.Fields(names) {
			all[name] = definition{parameters, func(r *run, v any, args []any) any {
				s, ok := v.(string)
				if !ok {
					r.refuse("method %s of a string that is marked as safe", name)
				}
				r.step(1 + len(s)/16)
				return f(r, name, s, args)
			}}
		}
	}
	add("split rsplit", "sep? maxsplit?", func(r *run, name, s string, args []any) any {
		return r.split(name, s, args[0], int(r.whole(name, args[1], -1)))
	})
	add("splitlines", "keepends?", func(r *run, _, s string, args []any) any {
		return r.strings(splitLines(s, r.optional(args[0])))
	})
	add("strip lstrip rstrip", "chars? /", func(r *run, name, s string, args []any) any { return r.strip(name, s, args[0]) })
	add("startswith endswith", "prefix /", func(r *run, name, s string, args []any) any { return r.begins(name, s, args[0]) })
	add("replace", "old new count? /", func(r *run, name, s string, args []any) any {
		return r.replace(s, r.text(name, args[0]), r.text(name, args[1]), r.whole(name, args[2], -1))
	})
	add("join", "iterable /", func(r *run, name, s string, args []any) any {
		var parts []string
		for _, one := range r.all(args[0]) {
			parts = append(parts, r.text(name, one))
		}
		return r.glue(parts, s)
	})
	add("format", lazy, func(r *run, _, s string, args []any) any { return r.format(s, args[0].(actual)) })
	add("count find rfind index rindex", "sub /", func(r *run, name, s string, args []any) any {
		return r.find(name, s, r.text(name, args[0]))
	})
	add("partition rpartition", "sep /", func(r *run, name, s string, args []any) any {
		return r.partition(name, s, r.text(name, args[0]))
	})
	add("removeprefix", "prefix /", func(r *run, name, s string, args []any) any {
		if prefix := r.bare(r.text(name, args[0])); strings.HasPrefix(r.bare(s), prefix) {
			return s[r.place(s, len(prefix)):]
		}
		return s
	})
	add("removesuffix", "suffix /", func(r *run, name, s string, args []any) any {
		suffix, bare := r.bare(r.text(name, args[0])), r.bare(s)
		if strings.HasSuffix(bare, suffix) {
			return s[:r.place(s, len(bare)-len(suffix))]
		}
		return s
	})
	for name, f := range map[string]func(r *run, s string) string{
		"upper": (*run).upper, "lower": (*run).lower, "capitalize": (*run).capitalize,
		"title": func(r *run, s string) string { return r.title(s, func(before byte) bool { return !isLetter(before) }) },
	} {
		add(name, "/", func(r *run, _, s string, _ []any) any { return f(r, s) })
	}
	add("isalnum isalpha isascii isdigit islower isspace isupper", "/", func(r *run, name, s string, _ []any) any {
		return r.kindOf(name, s)
	})
	return all
}

func (r *run) strings(parts []string) *list {
	r.make(valueSize * 2 * len(parts))
	r.step(len(parts))
	l := &list{items: make([]any, len(parts)), kind: listKind}
	for i, part := range parts {
		l.items[i] = part
	}
	return l
}

// split implements split and rsplit. most is the largest number of cuts; a negative
// number means all.
func (r *run) split(name, s string, sep any, most int) any {
	if !omitted(sep) && r.marked(s) {
		between := len(r.bare(r.text(name, sep)))
		parts := r.split(name, r.bare(s), sep, most).(*list)
		for i, part := range parts.items {
			end := r.place(s, len(part.(string)))
			parts.items[i] = s[:end]
			s = s[end:]
			s = s[r.place(s, min(between, len(s))):]
		}
		return parts
	}
	if most < 0 {
		most = len(s)
	}
	right := name == "rsplit"
	next, trim := strings.Index, strings.TrimLeftFunc
	if right {
		next, trim = strings.LastIndex, strings.TrimRightFunc
	}
	width := 0
	cut := func() (at int) {
		if !omitted(sep) {
			between := r.bare(r.text(name, sep))
			if width = len(between); width == 0 {
				r.wrong("%s at an empty string", name)
			}
			return next(s, between)
		}
		at = strings.IndexFunc(s, isSpace)
		if right {
			at = strings.LastIndexFunc(s, isSpace)
		}
		_, width = utf8.DecodeRuneInString(s[max(at, 0):])
		return at
	}
	var parts []string
	for {
		if omitted(sep) {
			if s = trim(s, isSpace); s == "" {
				break
			}
		}
		at := cut()
		if at < 0 || len(parts) == most {
			parts = append(parts, s)
			break
		}
		before, behind := s[:at], s[at+width:]
		if right {
			before, behind = behind, before
		}
		parts, s = append(parts, before), behind
	}
	if right {
		slices.Reverse(parts)
	}
	return r.strings(parts)
}

// splitLines splits at line ends, of which Python has many kinds.
func splitLines(s string, keep bool) []string {
	var lines []string
	for s != "" {
		at := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if at < 0 {
			return append(lines, s)
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			size = 2
		}
		line := s[:at]
		if keep {
			line = s[:at+size]
		}
		lines = append(lines, line)
		s = s[at+size:]
	}
	return lines
}

func (r *run) strip(name, s string, chars any) string {
	r.step(len(s) / 64)
	drop := isSpace
	if !omitted(chars) {
		set := r.bare(r.text(name, chars))
		drop = func(c rune) bool { return strings.ContainsRune(set, r.character(c)) }
	}
	if name != "rstrip" {
		s = strings.TrimLeftFunc(s, drop)
	}
	if name != "lstrip" {
		s = strings.TrimRightFunc(s, drop)
	}
	return s
}

func (r *run) begins(name, s string, with any) bool {
	test := strings.HasPrefix
	if name == "endswith" {
		test = strings.HasSuffix
	}
	parts := []any{with}
	if l, ok := with.(*list); ok && l.kind == tupleKind {
		parts = l.items
	}
	for _, one := range parts {
		if test(r.bare(s), r.bare(r.text(name, one))) {
			return true
		}
	}
	return false
}

func (r *run) replace(s, old, by string, count int64) string {
	r.step(len(s) / 16)
	old = r.bare(old)
	n := int64(strings.Count(r.bare(s), old))
	if count >= 0 {
		n = min(n, count)
	}
	r.step(int(min(n, maxSteps)))
	r.make(len(s))
	if by != "" {
		r.make(int(min(n, maxBytes)) * len(by))
	}
	if !r.marked(s) {
		return strings.Replace(s, old, by, int(n))
	}
	return r.replaceMarked(s, old, by, int(n))
}

// replaceMarked replaces what the characters of s have n times. An empty text is before
// each character and at the end.
func (r *run) replaceMarked(s, old, by string, n int) string {
	var out strings.Builder
	bare := r.bare(s)
	from, done := 0, 0 // in bare, in s
	for i := range n {
		at := strings.Index(bare[from:], old)
		if old == "" {
			if at = 0; i > 0 {
				_, at = utf8.DecodeRuneInString(bare[from:])
			}
		}
		begin := done + r.place(s[done:], at)
		out.WriteString(s[done:begin])
		out.WriteString(by)
		from, done = from+at+len(old), begin+r.place(s[begin:], len(old))
	}
	out.WriteString(s[done:])
	return out.String()
}

// glue joins texts and counts the memory.
func (r *run) glue(parts []string, s string) string {
	r.step(len(parts))
	for _, part := range parts {
		r.make(len(part) + len(s))
	}
	return strings.Join(parts, s)
}

func (r *run) find(name, s, sub string) any {
	s, sub = r.bare(s), r.bare(sub)
	at := strings.Index(s, sub)
	switch name {
	case "count":
		return int64(strings.Count(s, sub))
	case "rfind", "rindex":
		at = strings.LastIndex(s, sub)
	}
	if at < 0 {
		if strings.HasSuffix(name, "index") {
			r.wrong("the string has no %q", sub)
		}
		return int64(-1)
	}
	return int64(utf8.RuneCountInString(s[:at]))
}

func (r *run) partition(name, s, sep string) any {
	if sep == "" {
		r.wrong("%s at an empty string", name)
	}
	parts := []any{s, "", ""}
	bare, between := r.bare(s), r.bare(sep)
	at := strings.Index(bare, between)
	if name == "rpartition" {
		parts = []any{"", "", s}
		at = strings.LastIndex(bare, between)
	}
	if at >= 0 {
		parts = []any{s[:r.place(s, at)], sep, s[r.place(s, at+len(between)):]}
	}
	return &list{items: parts, kind: tupleKind}
}
