package jinja

import "strings"

// bind sorts the arguments of a function by its parameters. The name of one that
// may be left out ends with "?"; it is nil then.
func (r *run) bind(function string, a actual, parameters ...string) []any {
	if len(a.positional) > len(parameters) {
		r.wrong("%s gets %d arguments", function, len(a.positional))
	}
	values := make([]any, len(parameters))
	copy(values, a.positional)
	for _, one := range a.named {
		i := position(parameters, one.name)
		switch {
		case i < 0:
			r.wrong("%s has no argument %s", function, one.name)
		case values[i] != nil:
			r.wrong("%s gets argument %s twice", function, one.name)
		}
		values[i] = one.value
	}
	for i, p := range parameters {
		if values[i] == nil && !strings.HasSuffix(p, "?") {
			r.wrong("%s misses argument %s", function, p)
		}
	}
	return values
}

func position(parameters []string, name string) int {
	for i, p := range parameters {
		if strings.TrimSuffix(p, "?") == name {
			return i
		}
	}
	return -1
}

// bindPositional is bind for the methods of Python that take no names.
func (r *run) bindPositional(function string, a actual, parameters ...string) []any {
	if len(a.named) > 0 {
		r.wrong("%s takes no argument by name", function)
	}
	return r.bind(function, a, parameters...)
}

// text is an argument that has to be a string.
func (r *run) text(function string, v any) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		r.refuse("%s with a string that is marked as safe", function)
	}
	r.wrong("%s needs a string, not a %s", function, typeName(v))
	return ""
}

// whole is an argument that has to be an integer; otherwise stands for one that was
// left out.
func (r *run) whole(function string, v any, otherwise int64) int64 {
	if v == nil {
		return otherwise
	}
	i, is := toNumber(v).(int64)
	if !is {
		r.wrong("%s needs an integer, not a %s", function, typeName(v))
	}
	return i
}

// optional is truth of an argument, false where it was left out.
func (r *run) optional(v any) bool { return v != nil && r.truth(v) }
