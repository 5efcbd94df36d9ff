package jinja

import (
	"strings"
)

// closure is a macro with the variables around it.
type closure struct {
	*macro
	outer *frame
}

// actual are the arguments of one call.
type actual struct {
	positional []any
	named      []namedValue
}

type namedValue struct {
	name  string
	value any
}

// take gives the argument of a name and removes it; nil where there is none.
func (a *actual) take(name string) any {
	for i, one := range a.named {
		if one.name == name {
			a.named = append(append([]namedValue(nil), a.named[:i]...), a.named[i+1:]...)
			return one.value
		}
	}
	return nil
}

// given evaluates the arguments of a call.
func (r *run) given(a *arguments) actual {
	var all actual
	if len(a.positional) > 0 {
		all.positional = make([]any, len(a.positional))
		for i, e := range a.positional {
			all.positional[i] = r.value(e)
		}
	}
	for _, one := range a.named {
		all.named = append(all.named, namedValue{one.name, r.value(one.value)})
	}
	if a.spread != nil {
		r.spread(&all, r.value(a.spread))
	}
	return all
}

// spread adds the items of a value to the arguments.
func (r *run) spread(all *actual, of any) {
	all.positional = append(all.positional, r.all(of)...)
}

// invoke runs a macro and gives what it writes.
func (r *run) invoke(m *closure, a actual) string {
	if len(a.positional) > len(m.parameters) {
		r.wrong("macro %s has %d parameters and gets %d arguments", m.name, len(m.parameters), len(a.positional))
	}
	f := &frame{slots: make([]any, m.slots), outer: m.outer}
	for i, p := range m.parameters {
		if i < len(a.positional) {
			f.slots[p.slot] = a.positional[i]
		} else {
			f.slots[p.slot] = a.take(p.name)
		}
	}
	if m.caller >= 0 {
		if f.slots[m.caller] = a.take("caller"); f.slots[m.caller] == nil {
			f.slots[m.caller] = &undefined{what: "caller"}
		}
	}
	if len(a.named) > 0 {
		r.wrong("macro %s has no parameter %s", m.name, a.named[0].name)
	}
	outside := r.frame
	r.frame = f
	r.enter(&m.layout)
	for _, p := range m.parameters {
		if f.slots[p.slot] != nil {
			continue
		}
		if p.fallback == nil {
			f.slots[p.slot] = &undefined{what: p.name}
		} else {
			f.slots[p.slot] = r.value(p.fallback)
		}
	}
	if r.depth += macroDepth; r.depth > deepestRun {
		fail(ErrLimit, r.pos, "macros call each other deeper than %d expressions", deepestRun)
	}
	text, _ := r.capture(m.body)
	r.depth -= macroDepth
	r.frame = outside
	return text
}

// macroDepth is what a call of a macro adds to the depth of a run; the statements
// of its body aren't counted one by one.
const macroDepth = 20

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
