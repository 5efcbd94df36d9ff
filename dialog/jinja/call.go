package jinja

import (
	"slices"
	"strings"
)

// arguments are the arguments of a call, a filter or a test, as they stand in the source.
type arguments struct {
	positional []expression
	named      []namedArgument
	spread     expression // a list of further arguments, after the positional ones, or nil
}

type namedArgument struct {
	name  string
	value expression
}

// actual holds the evaluated arguments of one call.
type actual struct {
	positional []any
	named      []namedValue
}

type namedValue struct {
	name  string
	value any
}

func (p *parser) arguments() *arguments {
	defer p.nest()()
	a := &arguments{}
	p.expect(operator, "(")
	for n := 0; p.more(n, ")"); n++ {
		p.argument(a)
	}
	return a
}

func (p *parser) argument(a *arguments) {
	t := p.peek()
	switch {
	case t.is(operator, "**"), t.is(operator, "*") && len(a.named) > 0:
		fail(ErrUnsupported, t.pos, "an argument with %s", t.text)
	case a.spread != nil:
		fail(ErrUnsupported, t.pos, "an argument behind one with *")
	case p.skip(operator, "*"):
		a.spread = p.expression()
	case t.kind == name && p.ahead().is(operator, "="):
		p.next()
		p.next()
		if slices.ContainsFunc(a.named, func(other namedArgument) bool { return other.name == t.text }) {
			fail(ErrSyntax, t.pos, "two arguments %s", t.text)
		}
		a.named = append(a.named, namedArgument{t.text, p.expression()})
	case len(a.named) > 0:
		fail(ErrSyntax, t.pos, "an argument without a name after one that has a name")
	default:
		a.positional = append(a.positional, p.expression())
	}
}

// given evaluates the arguments of a call.
func (r *run) given(a *arguments) actual {
	var all actual
	if len(a.positional) > 0 {
		all.positional = r.values(a.positional)
	}
	for _, one := range a.named {
		all.named = append(all.named, namedValue{one.name, r.value(one.value)})
	}
	if a.spread != nil {
		all.positional = append(all.positional, r.all(r.value(a.spread))...)
	}
	return all
}

// call is a call, as it stands in the source.
type call struct {
	pos int
	of  expression
	*arguments
}

func (c *call) eval(r *run) any { return c.with(r) }

// with makes the call with more named arguments.
func (c *call) with(r *run, more ...namedValue) any {
	of := r.value(c.of)
	a := r.given(c.arguments)
	a.named = append(a.named, more...)
	r.pos = c.pos
	switch of := of.(type) {
	case *function:
		return of.call(r, a)
	case *undefined:
		r.undefined(of)
	case *loopContext:
		r.refuse("a call of loop")
	}
	r.wrong("a %s can't be called", typeName(of))
	return nil
}

// macro is the body of {% macro %}, {% call %} or {% generation %}.
type macro struct {
	name       string
	parameters []parameter
	body       block
	names      *names
	caller     bool // the body uses the variable caller
}

type parameter struct {
	name     string
	fallback expression // or nil
}

func (p *parser) macro(t token) statement {
	called := p.expect(name, "").text
	p.scope.note(called, true)
	m := p.signature(t, called, true, "endmacro", func() {})
	return func(r *run) flow {
		around := r.scope
		r.scope.set(m.name, &function{macro: true, call: func(r *run, a actual) any { return r.invoke(m, around, a) }})
		return onward
	}
}

func (p *parser) callBlock(t token) statement {
	var of *call
	m := p.signature(t, "caller", p.peek().is(operator, "("), "endcall", func() {
		var ok bool
		if of, ok = p.expression().(*call); !ok {
			fail(ErrSyntax, t.pos, "{%% call %%} calls nothing")
		}
	})
	return func(r *run) flow {
		around := r.scope
		body := &function{macro: true, call: func(r *run, a actual) any { return r.invoke(m, around, a) }}
		r.write(r.str(of.with(r, namedValue{"caller", body})))
		return onward
	}
}

// signature reads a macro or a call block: its parameters, if it has any, then what
// stands between them and the body, then the body.
func (p *parser) signature(t token, called string, brackets bool, until string, between func()) *macro {
	m := &macro{name: called, names: p.names()}
	m.names.inLoop, m.names.function = false, true
	outside, unknown := p.scope, len(p.unknown)
	if brackets {
		p.expect(operator, "(")
		p.scope = m.names
		for !p.peek().is(operator, ")") {
			p.parameter(m)
		}
		p.scope = outside
		p.next()
	}
	p.refuse(unknown)
	between()
	since := len(p.mentions)
	m.body, _ = p.scoped(m.names, until)
	for _, special := range []string{"varargs", "kwargs"} {
		if p.reads(special, since) {
			fail(ErrUnsupported, t.pos, "a macro that reads %s", special)
		}
	}
	m.caller = p.reads("caller", since)
	return m
}

func (p *parser) parameter(m *macro) {
	if len(m.parameters) > 0 {
		p.expect(operator, ",")
	}
	t := p.expect(name, "")
	one := parameter{name: t.text}
	if t.text == "caller" || t.text == "varargs" || t.text == "kwargs" {
		fail(ErrUnsupported, t.pos, "parameter %s", t.text)
	}
	if slices.ContainsFunc(m.parameters, func(other parameter) bool { return other.name == one.name }) {
		fail(ErrSyntax, t.pos, "two parameters %s", one.name)
	}
	p.scope.note(t.text, true)
	if p.skip(operator, "=") {
		one.fallback = p.expression()
	} else if n := len(m.parameters); n > 0 && m.parameters[n-1].fallback != nil {
		fail(ErrSyntax, t.pos, "parameter %s has no default and comes after one that has", t.text)
	}
	m.parameters = append(m.parameters, one)
}

// macroDepth is what a call of a macro adds to the depth of a run. The statements of the
// macro's body aren't counted one by one.
const macroDepth = 20

// invoke runs a macro that was defined in the scope around, and returns what it writes.
func (r *run) invoke(m *macro, around *scope, a actual) (text string) {
	if len(a.positional) > len(m.parameters) {
		r.wrong("macro %s has %d parameters and gets %d arguments", m.name, len(m.parameters), len(a.positional))
	}
	outside := r.scope
	r.scope = r.enter(m.names, around)
	r.begin(r.scope)
	for i, p := range m.parameters {
		var v any
		if i < len(a.positional) {
			v = a.positional[i]
		} else {
			v = a.take(p.name)
		}
		if v == any(missing{}) { // like an argument that is left out
			v = nil
		}
		r.scope.set(p.name, v)
	}
	if m.caller {
		r.scope.set("caller", a.take("caller"))
	}
	if len(a.named) > 0 {
		r.wrong("macro %s has no parameter %s", m.name, a.named[0].name)
	}
	for _, p := range m.parameters {
		if p.fallback != nil && *r.scope.find(p.name) == nil {
			r.scope.set(p.name, r.value(p.fallback))
		}
	}
	if r.depth += macroDepth; r.depth > deepestRun {
		fail(ErrLimit, r.pos, "macros call each other deeper than %d expressions", deepestRun)
	}
	text, _ = r.capture(m.body)
	r.depth -= macroDepth
	r.scope = outside
	return text
}

// take removes the argument of a name and returns its value, or nil if there is no such
// argument.
func (a *actual) take(name string) any {
	for i, one := range a.named {
		if one.name == name {
			a.named = slices.Delete(slices.Clone(a.named), i, i+1)
			return one.value
		}
	}
	return nil
}

// bind assigns the arguments of a call to the parameters of a function. A parameter whose
// name ends with "?" may be left out; its value is then nil. If the last parameter is
// "/", no argument may be given by name, as in Python.
func (r *run) bind(function string, a actual, parameters ...string) []any {
	if n := len(parameters); n > 0 && parameters[n-1] == "/" {
		if parameters = parameters[:n-1]; len(a.named) > 0 {
			r.wrong("%s takes no argument by name", function)
		}
	}
	if len(a.positional) > len(parameters) {
		r.wrong("%s gets %d arguments", function, len(a.positional))
	}
	values := make([]any, len(parameters))
	copy(values, a.positional)
	for _, one := range a.named {
		i := slices.IndexFunc(parameters, func(p string) bool { return strings.TrimSuffix(p, "?") == one.name })
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

// text returns an argument that has to be a string.
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

// whole returns an argument that has to be an integer, or otherwise if it was left out.
func (r *run) whole(function string, v any, otherwise int64) int64 {
	if v == nil {
		return otherwise
	}
	i, ok := toNumber(v).(int64)
	if !ok {
		r.wrong("%s needs an integer, not a %s", function, typeName(v))
	}
	return i
}

// optional returns the truth of an argument, or false if it was left out.
func (r *run) optional(v any) bool { return v != nil && r.truth(v) }

// omitted reports whether an argument was left out or is none.
func omitted(v any) bool { return v == nil || v == any(none{}) }
