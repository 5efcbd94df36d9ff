package schema

import "slices"

// facts are the combined restrictions of the schemas of a conjunction.
type facts struct {
	types types
	// values are the values of enum and const. They are nil if any value is allowed.
	values   []*document
	limited  bool // there is an enum or const, perhaps with no value left
	low      *limit
	high     *limit
	limits   []*document // the places of the limits
	length   count       // of characters
	size     count       // of items
	pattern  *document
	format   string
	objects  []objectPart
	arrays   []arrayPart
	refusals []member
}

// count bounds a number of characters or items.
type count struct{ least, most int }

func (c *count) atLeast(n int) { c.least = max(c.least, n) }

func (c *count) atMost(n int) {
	if c.most == unbounded || n < c.most {
		c.most = n
	}
}

// objectPart has the restrictions that one schema puts on objects.
type objectPart struct {
	place      *document
	properties *document // nil if the schema lists none
	additional *document // nil if the schema says nothing about others
	required   []string
}

func (p objectPart) of(name string) *document {
	if p.properties != nil {
		if own := p.properties.member(name); own != nil {
			return own
		}
	}
	return p.additional
}

// arrayPart has the restrictions that one schema puts on arrays.
type arrayPart struct {
	prefix []*document
	items  *document // nil if the schema says nothing about them
	closes bool      // the schema lists the first items
}

func (p arrayPart) of(i int) *document {
	if i < len(p.prefix) {
		return p.prefix[i]
	}
	return p.items
}

func (c conjunction) facts() (*facts, error) {
	f := &facts{types: anything, length: count{0, unbounded}, size: count{0, unbounded}}
	for _, d := range c {
		if err := f.read(d); err != nil {
			return nil, err
		}
	}
	return f, f.check()
}

// read adds the restrictions of one schema.
func (f *facts) read(d *document) error {
	o := objectPart{place: d}
	var a arrayPart
	for _, m := range d.members {
		var err error
		switch m.name {
		case "type":
			err = f.readType(m.value)
		case "enum", "const":
			err = f.readValues(m)
		case "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum":
			err = f.readLimit(m)
		case "minLength", "maxLength", "minItems", "maxItems":
			err = f.readCount(m)
		case "pattern":
			err = f.readPattern(m.value)
		case "format":
			f.format = m.value.text
		case "properties", "required", "additionalProperties":
			err = o.read(m)
		case "prefixItems", "items", "additionalItems":
			err = a.read(m)
		default:
			if refused(m.name) != 0 {
				f.refusals = append(f.refusals, m)
			}
		}
		if err != nil {
			return err
		}
	}
	f.objects, f.arrays = append(f.objects, o), append(f.arrays, a)
	return nil
}

func (f *facts) readType(d *document) error {
	names := []*document{d}
	if d.kind == '[' {
		names = d.items
	}
	var union types
	for _, name := range names {
		one := typesNamed(name.text)
		if name.kind != '"' || one == 0 {
			return name.refuse("unknown type")
		}
		union |= one
	}
	f.types &= union
	return nil
}

func (f *facts) readValues(m member) error {
	values := []*document{m.value}
	if m.name == "enum" {
		if values = m.value.items; m.value.kind != '[' {
			return m.value.refuse("want a list of values")
		}
	}
	if f.limited {
		allowed := map[string]bool{}
		for _, v := range values {
			allowed[v.spelled()] = true
		}
		values = slices.DeleteFunc(slices.Clone(f.values), func(v *document) bool { return !allowed[v.spelled()] })
	}
	f.values, f.limited = values, true
	return nil
}

func (f *facts) readLimit(m member) error {
	at, err := m.value.number()
	if err != nil {
		return err
	}
	f.limits = append(f.limits, m.value)
	one := &limit{at, m.name[0] == 'e'}
	end, tighter := &f.low, 1
	if m.name == "maximum" || m.name == "exclusiveMaximum" {
		end, tighter = &f.high, -1
	}
	if old := *end; old == nil || at.Cmp(old.at) == tighter || at.Cmp(old.at) == 0 && one.strict {
		*end = one
	}
	return nil
}

func (f *facts) readCount(m member) error {
	n, err := m.value.count()
	if err != nil {
		return err
	}
	of := &f.length
	if m.name == "minItems" || m.name == "maxItems" {
		of = &f.size
	}
	if m.name[:3] == "min" {
		of.atLeast(n)
	} else {
		of.atMost(n)
	}
	return nil
}

func (f *facts) readPattern(d *document) error {
	if d.kind != '"' {
		return d.refuse("want a regular expression")
	}
	if f.pattern != nil && f.pattern.text != d.text {
		return d.refuse("two patterns for one string")
	}
	f.pattern = d
	return nil
}

func (p *objectPart) read(m member) error {
	switch {
	case m.name == "additionalProperties":
		p.additional = m.value
		return nil
	case m.name == "properties" && m.value.kind == '{':
		p.properties = m.value
		return nil
	case m.name == "required" && m.value.kind == '[':
		for _, name := range m.value.items {
			if name.kind != '"' {
				return name.refuse("want the name of a property")
			}
			p.required = append(p.required, name.text)
		}
		return nil
	}
	return m.value.refuse("%s has the wrong type", m.name)
}

// read reads one member. Up to draft 2019-09, a list of first items was called items, and
// the schema of what follows them additionalItems.
func (p *arrayPart) read(m member) error {
	switch {
	case m.value.kind == '[' && m.name != "additionalItems":
		p.prefix, p.closes = m.value.items, true
	case m.name == "items", m.name == "additionalItems" && p.closes:
		p.items = m.value
	case m.name == "prefixItems":
		return m.value.refuse("want a list of schemas")
	}
	return nil
}

// check returns an error for an unsupported keyword, unless it restricts only values that
// are impossible anyway.
func (f *facts) check() error {
	possible := f.possible()
	for _, m := range f.refusals {
		if refused(m.name)&possible == 0 || idle(m.name, m.value) && (m.name != "multipleOf" || possible&fraction == 0) {
			continue
		}
		return m.value.refuse("keyword %q can't be held", m.name)
	}
	return nil
}

// possible returns the types that a value can still have.
func (f *facts) possible() types {
	if !f.limited {
		return f.types
	}
	var union types
	for _, v := range f.values {
		union |= v.types()
	}
	return union & f.types
}

// types returns the type of a value, as one bit.
func (d *document) types() types {
	switch d.kind {
	case 'n':
		return null
	case 't', 'f':
		return boolean
	case '"':
		return text
	case '[':
		return array
	case '{':
		return object
	}
	if n, err := d.number(); err == nil && n.IsInt() {
		return integer
	}
	return fraction
}
