package jinja

import (
	"strings"
	"unicode/utf8"
)

// method calls a method.
func (r *run) method(m *method, a actual) any {
	r.step(1)
	switch of := m.of.(type) {
	case string:
		return r.textMethod(of, m.name, a)
	case markup:
		r.refuse("method %s of a string that is marked as safe", m.name)
	case *dict:
		return r.dictMethod(of, m.name, a)
	case *list:
		return r.listMethod(of.items, m.name, a)
	case *tuple:
		return r.listMethod(of.items, m.name, a)
	}
	r.refuse("method %s of a %s", m.name, typeName(m.of))
	return nil
}

func (r *run) dictMethod(d *dict, name string, a actual) any {
	if name != "get" {
		r.bindPositional(name, a)
		return &view{d, name}
	}
	args := r.bindPositional(name, a, "key", "default?")
	if r.hasKey(d, args[0]) {
		key, _ := keyOf(args[0])
		v, _ := d.get(key)
		return v
	}
	if args[1] == nil {
		return none{}
	}
	return args[1]
}

func (r *run) listMethod(items []any, name string, a actual) any {
	v := r.bindPositional(name, a, "value")[0]
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

// textMethod calls a method of a string.
func (r *run) textMethod(s, name string, a actual) any {
	switch name {
	case "split", "rsplit":
		args := r.bind(name, a, "sep?", "maxsplit?")
		return r.split(name, s, args[0], int(r.whole(name, args[1], -1)))
	case "splitlines":
		args := r.bind(name, a, "keepends?")
		return r.lines(s, r.optional(args[0]))
	case "strip", "lstrip", "rstrip":
		return r.strip(name, s, r.bindPositional(name, a, "chars?")[0])
	case "startswith", "endswith":
		return r.begins(name, s, r.bindPositional(name, a, "prefix")[0])
	case "replace":
		args := r.bindPositional(name, a, "old", "new", "count?")
		return r.replace(s, r.text(name, args[0]), r.text(name, args[1]), r.whole(name, args[2], -1))
	case "join":
		return r.joined(s, r.bindPositional(name, a, "iterable")[0])
	case "format":
		return r.format(s, a)
	case "count", "find", "rfind", "index", "rindex":
		return r.find(name, s, r.text(name, r.bindPositional(name, a, "sub")[0]))
	case "partition", "rpartition":
		return r.partition(name, s, r.text(name, r.bindPositional(name, a, "sep")[0]))
	case "removeprefix":
		return strings.TrimPrefix(s, r.text(name, r.bindPositional(name, a, "prefix")[0]))
	case "removesuffix":
		return strings.TrimSuffix(s, r.text(name, r.bindPositional(name, a, "suffix")[0]))
	}
	r.bindPositional(name, a)
	switch name {
	case "upper":
		return r.upper(s)
	case "lower":
		return r.lower(s)
	case "capitalize":
		return r.capitalize(s)
	case "title":
		return r.title(s)
	}
	return r.kindOf(name, s)
}

func (r *run) strings(parts []string) *list {
	r.make(valueSize * 2 * len(parts))
	r.step(len(parts))
	l := &list{make([]any, len(parts))}
	for i, part := range parts {
		l.items[i] = part
	}
	return l
}

// split is split or rsplit; most is the number of cuts, negative for all.
func (r *run) split(name, s string, sep any, most int) any {
	r.step(len(s) / 16)
	right := name == "rsplit"
	if sep == nil || sep == any(none{}) {
		return r.strings(fields(s, most, right))
	}
	cut := r.text(name, sep)
	if cut == "" {
		r.wrong("%s at an empty string", name)
	}
	if most < 0 {
		return r.strings(strings.Split(s, cut))
	}
	var parts []string
	for i := 0; i < most; i++ {
		at := strings.Index(s, cut)
		if right {
			at = strings.LastIndex(s, cut)
		}
		if at < 0 {
			break
		}
		if right {
			parts = append(parts, s[at+len(cut):])
			s = s[:at]
		} else {
			parts = append(parts, s[:at])
			s = s[at+len(cut):]
		}
	}
	parts = append(parts, s)
	if right {
		reverse(parts)
	}
	return r.strings(parts)
}

// fields splits at white space.
func fields(s string, most int, right bool) []string {
	if most < 0 {
		return strings.FieldsFunc(s, isSpace)
	}
	var parts []string
	if right {
		for s = strings.TrimRightFunc(s, isSpace); s != "" && len(parts) < most; s = strings.TrimRightFunc(s, isSpace) {
			at := strings.LastIndexFunc(s, isSpace)
			_, size := utf8.DecodeRuneInString(s[max(at, 0):])
			if at < 0 {
				at, size = 0, 0
			}
			parts = append(parts, s[at+size:])
			s = s[:at]
		}
	} else {
		for s = strings.TrimLeftFunc(s, isSpace); s != "" && len(parts) < most; s = strings.TrimLeftFunc(s, isSpace) {
			at := strings.IndexFunc(s, isSpace)
			if at < 0 {
				at = len(s)
			}
			parts = append(parts, s[:at])
			s = s[at:]
		}
	}
	if s != "" {
		parts = append(parts, s)
	}
	if right {
		reverse(parts)
	}
	return parts
}

func reverse[T any](all []T) {
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
}

// lines splits at line ends, of which Python knows many.
func (r *run) lines(s string, keep bool) any { return r.strings(splitLines(s, keep)) }

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
	if chars != nil && chars != any(none{}) {
		set := r.text(name, chars)
		drop = func(c rune) bool { return strings.ContainsRune(set, c) }
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
	if t, is := with.(*tuple); is {
		for _, one := range t.items {
			if test(s, r.text(name, one)) {
				return true
			}
		}
		return false
	}
	return test(s, r.text(name, with))
}

func (r *run) replace(s, old, by string, count int64) string {
	r.step(len(s) / 16)
	n := int64(strings.Count(s, old))
	if count >= 0 {
		n = min(n, count)
	}
	r.step(int(min(n, mostSteps)))
	r.make(len(s))
	if by != "" {
		r.make(int(min(n, mostBytes)) * len(by))
	}
	return strings.Replace(s, old, by, int(n))
}

// joined is Python's s.join(v): of strings alone.
func (r *run) joined(s string, v any) string {
	var parts []string
	for _, one := range r.all(v) {
		parts = append(parts, r.text("join", one))
	}
	return r.glue(parts, s)
}

func (r *run) glue(parts []string, s string) string {
	r.step(len(parts))
	for _, part := range parts {
		r.make(len(part) + len(s))
	}
	return strings.Join(parts, s)
}

func (r *run) find(name, s, sub string) any {
	r.step(len(s) / 16)
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
	at := strings.Index(s, sep)
	if name == "rpartition" {
		if at = strings.LastIndex(s, sep); at < 0 {
			return &tuple{[]any{"", "", s}}
		}
	}
	if at < 0 {
		return &tuple{[]any{s, "", ""}}
	}
	return &tuple{[]any{s[:at], sep, s[at+len(sep):]}}
}
