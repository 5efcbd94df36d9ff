package jinja

import (
	"strconv"
	"strings"
)

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
