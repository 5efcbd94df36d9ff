package schema

import (
	"math/big"
	"regexp"
	"slices"
)

// facts are the combined restrictions of the schemas of a conjunction.
type facts struct {
	types types
	// values are the values of enum and const. They are nil if any value is allowed.
	values    []*document
	limited   bool // there is an enum or const, perhaps with no value left
	low       *limit
	high      *limit
	limits    []*document // the places of the limits
	length    count       // of characters
	size      count       // of items
	lengths   *document   // the place of a length
	sizes     *document   // the place of a number of items
	kinds     *document   // the place of a type
	choices   *document   // the place of an enum or const
	patterns  []*document
	formats   []*document
	objects   []objectPart
	names     []string // the only names that properties may have; nil if there may be others
	arrays    []arrayPart
	multiples []*big.Rat
	refusals  []refusal
}

// refusal is a keyword that is not supported, in its schema.
type refusal struct {
	in *document
	member
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
	patterns   *document // nil if the schema has no patternProperties
	additional *document // nil if the schema says nothing about others
	required   []string
}

// everyName is an expression of the expressions that match each name.
var everyName = regexp.MustCompile(`^\^?(\.\*)?\$?$`)

// under returns the schemas of the property of a name.
func (p objectPart) under(name string) ([]*document, error) {
	var all []*document
	if p.properties != nil {
		if own := p.properties.member(name); own != nil {
			all = append(all, own)
		}
	}
	if p.patterns != nil {
		for _, m := range p.patterns.members {
			re, err := regexp.Compile(m.name)
			if err != nil {
				return nil, m.value.refuse("pattern %q: %w", m.name, err)
			}
			if re.MatchString(name) {
				all = append(all, m.value)
			}
		}
	}
	if len(all) == 0 && p.additional != nil {
		all = append(all, p.additional)
	}
	return all, nil
}

// listed returns the names that the parts list, then those that they require.
func listed(parts []objectPart) []string {
	var names []string
	for _, part := range parts {
		if part.properties != nil {
			for _, m := range part.properties.members {
				names = append(names, m.name)
			}
		}
	}
	for _, part := range parts {
		names = append(names, part.required...)
	}
	return unique(names)
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

// read returns the facts of the schemas. It does not check keywords that are not
// supported.
func (c conjunction) read() (*facts, error) {
	f := &facts{types: anything, length: count{0, unbounded}, size: count{0, unbounded}}
	for _, d := range c {
		if err := f.read(d); err != nil {
			return nil, err
		}
	}
	return f, nil
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
			f.formats = distinctTexts(append(f.formats, m.value))
		case "properties", "required", "additionalProperties":
			err = o.read(m)
		case "not":
			err = f.readNot(d, m)
		case "prefixItems", "items", "additionalItems":
			err = a.read(m)
		default:
			if refused(m.name) != 0 {
				f.refusals = append(f.refusals, refusal{d, m})
			}
		}
		if m.name == "patternProperties" && m.value.kind == '{' {
			o.patterns = m.value
		}
		if err != nil {
			return err
		}
	}
	if o.patterns != nil {
		for _, m := range o.patterns.members {
			if everyName.MatchString(m.name) {
				o.additional = m.value
			}
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
	f.kinds = d
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
	f.values, f.limited, f.choices = values, true, m.value
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
		of, f.sizes = &f.size, m.value
	} else {
		f.lengths = m.value
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
	f.patterns = distinctTexts(append(f.patterns, d))
	return nil
}

// distinctTexts leaves out those with the text of an earlier one.
func distinctTexts(all []*document) []*document {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(d *document) bool {
		twice := seen[d.text]
		seen[d.text] = true
		return twice
	})
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

// readNot takes types out if that is all that the schema says.
func (f *facts) readNot(in *document, m member) error {
	only := &facts{types: anything}
	for _, inner := range m.value.members {
		switch {
		case inner.name == "type":
			if err := only.readType(inner.value); err != nil {
				return err
			}
		case inner.name == "$ref" || inner.name == "allOf" || inner.name == "anyOf" || inner.name == "oneOf" ||
			(&document{members: []member{inner}}).restricts():
			only.types = anything
			f.refusals = append(f.refusals, refusal{in, m})
			return nil
		}
	}
	if m.value.kind != '{' || only.types&number == integer {
		f.refusals = append(f.refusals, refusal{in, m})
		return nil
	}
	f.types &^= only.types
	return nil
}

// contradiction returns why the restrictions leave no value, or nil if they don't. An array
// or object may still lack values that it needs.
func (f *facts) contradiction(shapes []shape) error {
	var reason error
	for _, s := range shapes {
		switch s := s.(type) {
		case constants:
			if len(s) > 0 {
				return nil
			}
			reason = f.choices.refuse("none of the values satisfies the other keywords")
		case *numbers:
			if !s.none {
				return nil
			}
			reason = f.limits[0].refuse("no number that can be written is within the limits; they have up to %d digits before and after the point", maxDigits)
		case *texts:
			if s.inner != nil {
				return nil
			}
			reason = s.place.refuse("no string satisfies it together with the other keywords")
		case *arrays:
			if s.possible() {
				return nil
			}
			reason = f.sizes.refuse("no array has that number of items")
		default:
			return nil
		}
	}
	if len(shapes) == 0 && f.kinds != nil {
		reason = f.kinds.refuse("no type is left")
	}
	return reason
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
