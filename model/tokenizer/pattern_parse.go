package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// element is one step of an alternative while a pattern is read: a set, or a
// group of alternatives.
type element struct {
	node
	group    [][]element
	optional bool
}

// reader reads the source of a pattern.
type reader struct {
	source string
	pos    int
	fold   bool // inside (?i:…)
	depth  int
}

// parsePattern parses a pattern. For a pattern of a kind that is not supported, it
// returns an error with the place.
func parsePattern(source string) (*pattern, error) {
	if !utf8.ValidString(source) {
		return nil, fmt.Errorf("%w: pattern %q is not UTF-8", ErrUnsupported, source)
	}
	r := &reader{source: source}
	alternatives, err := r.alternatives()
	if err == nil && r.pos < len(source) {
		err = r.refuse("unpaired )")
	}
	if err == nil && empty(alternatives) {
		err = r.refuse("it matches the empty text")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: pattern %q: %w", ErrUnsupported, source, err)
	}
	return &pattern{&node{branches: linkAll(alternatives, nil)}}, nil
}

func (r *reader) refuse(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %s", r.pos, fmt.Sprintf(format, args...))
}

func (r *reader) peek() rune {
	if r.pos == len(r.source) {
		return -1
	}
	c, _ := utf8.DecodeRuneInString(r.source[r.pos:])
	return c
}

func (r *reader) next() rune {
	c, n := utf8.DecodeRuneInString(r.source[r.pos:])
	r.pos += n
	return c
}

func (r *reader) skip(prefix string) bool {
	ok := strings.HasPrefix(r.source[r.pos:], prefix)
	if ok {
		r.pos += len(prefix)
	}
	return ok
}

func (r *reader) alternatives() ([][]element, error) {
	var all [][]element
	for {
		var one []element
		for c := r.peek(); c >= 0 && c != '|' && c != ')'; c = r.peek() {
			e, err := r.element()
			if err != nil {
				return nil, err
			}
			one = append(one, e)
		}
		all = append(all, one)
		if !r.skip("|") {
			return all, nil
		}
	}
}

func (r *reader) element() (element, error) {
	if r.peek() == '(' {
		return r.group()
	}
	s, err := r.set()
	if err != nil {
		return element{}, err
	}
	e := element{node: node{set: s, min: 1, max: 1}}
	return e, r.repetition(&e)
}

func (r *reader) group() (element, error) {
	switch {
	case r.skip("(?!"):
		s, err := r.set()
		if err == nil && !r.skip(")") {
			err = r.refuse("want one set in (?!…)")
		}
		return element{node: node{set: s, ahead: true}}, err
	case r.skip("(?i:"):
		defer func(before bool) { r.fold = before }(r.fold)
		r.fold = true
	case r.skip("(?:"):
	default:
		return element{}, r.refuse("want (?:, (?i: or (?!")
	}
	if r.depth++; r.depth > 16 {
		return element{}, r.refuse("groups nest too deep")
	}
	defer func() { r.depth-- }()
	alternatives, err := r.alternatives()
	if err != nil {
		return element{}, err
	}
	if !r.skip(")") {
		return element{}, r.refuse("want )")
	}
	optional := r.skip("?")
	if strings.ContainsRune("?*+{", r.peek()) {
		return element{}, r.refuse("repeated group")
	}
	return element{group: alternatives, optional: optional}, nil
}

func (r *reader) repetition(e *element) error {
	switch {
	case r.skip("?"):
		e.min = 0
	case r.skip("*"):
		e.min, e.max = 0, -1
	case r.skip("+"):
		e.max = -1
	case r.skip("{"):
		return r.bounds(e)
	default:
		return nil
	}
	e.possessive = r.skip("+")
	if strings.ContainsRune("?*+{", r.peek()) {
		return r.refuse("repetition of a repetition")
	}
	return nil
}

func (r *reader) bounds(e *element) error {
	text, _, ok := strings.Cut(r.source[r.pos:], "}")
	low, high, ranged := strings.Cut(text, ",")
	least, err := strconv.ParseUint(low, 10, 8)
	most := least
	switch {
	case ranged && high == "":
		e.max = -1
	case ranged && err == nil:
		most, err = strconv.ParseUint(high, 10, 8)
	}
	if !ok || err != nil || most < least {
		return r.refuse("want {n}, {n,} or {n,m} below 256")
	}
	e.min = int(least)
	if e.max != -1 {
		e.max = int(most)
	}
	r.pos += len(text) + 1
	if strings.ContainsRune("?*+{", r.peek()) {
		return r.refuse("repetition of a repetition")
	}
	return nil
}

// set reads one character or class.
func (r *reader) set() (*set, error) {
	switch c := r.peek(); {
	case c < 0:
		return nil, r.refuse("want a character")
	case c == '[':
		return r.class()
	case strings.ContainsRune(`.^$*+?{}()|]`, c):
		return nil, r.refuse("%q", c)
	}
	p, literal, err := r.part()
	if err != nil || !r.fold {
		return newSet(false, p), err
	}
	// Letters such as f, which fold in pairs into one character, never occur in
	// what patterns fold: the endings of English contractions.
	if !literal || !strings.ContainsRune("'smdtlrve", unicode.ToLower(p.low)) {
		return nil, r.refuse("(?i:…) of something else than contractions")
	}
	folds := []part{p}
	for f := unicode.SimpleFold(p.low); f != p.low; f = unicode.SimpleFold(f) {
		folds = append(folds, single(f))
	}
	return newSet(false, folds...), nil
}

func (r *reader) class() (*set, error) {
	if r.fold {
		return nil, r.refuse("a class in (?i:…)")
	}
	r.pos++
	negated := r.skip("^")
	var parts []part
	for !r.skip("]") {
		switch c := r.peek(); {
		case c < 0:
			return nil, r.refuse("want ]")
		case c == '[' || strings.HasPrefix(r.source[r.pos:], "&&"):
			return nil, r.refuse("a class in a class")
		}
		p, literal, err := r.part()
		if err != nil {
			return nil, err
		}
		if rest := r.source[r.pos:]; literal && strings.HasPrefix(rest, "-") && !strings.HasPrefix(rest, "-]") {
			r.pos++
			high, ok, err := r.part()
			if err != nil || !ok || high.low < p.low {
				return nil, r.refuse("bad range")
			}
			p.high = high.low
		}
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		return nil, r.refuse("empty class")
	}
	return newSet(negated, parts...), nil
}

// part reads a character or an escape; literal is true if it is one character.
func (r *reader) part() (p part, literal bool, err error) {
	c := r.next()
	if c != '\\' {
		return single(c), true, nil
	}
	if r.pos == len(r.source) {
		return part{}, false, r.refuse("want an escape")
	}
	switch c = r.next(); c {
	case 'r':
		return single('\r'), true, nil
	case 'n':
		return single('\n'), true, nil
	case 't':
		return single('\t'), true, nil
	case 's', 'S':
		return part{table: unicode.White_Space, outside: c == 'S'}, false, nil
	case 'p', 'P':
		return r.category(c == 'P')
	}
	if c >= utf8.RuneSelf || unicode.IsLetter(c) || unicode.IsDigit(c) {
		return part{}, false, r.refuse(`\%c`, c)
	}
	return single(c), true, nil
}

func (r *reader) category(outside bool) (part, bool, error) {
	name, _, ok := strings.Cut(r.source[r.pos:], "}")
	if !ok || !strings.HasPrefix(name, "{") {
		return part{}, false, r.refuse("want the name of a category in braces")
	}
	table, err := categories(name[1:])
	if err != nil {
		return part{}, false, r.refuse("%s", err)
	}
	r.pos += len(name) + 1
	return part{table: table, outside: outside}, false, nil
}

// empty reports whether one of the alternatives matches the empty text.
func empty(alternatives [][]element) bool {
	for _, one := range alternatives {
		every := true
		for _, e := range one {
			every = every && (e.ahead || e.optional || e.group == nil && e.min == 0 || e.group != nil && empty(e.group))
		}
		if every {
			return true
		}
	}
	return false
}

func linkAll(alternatives [][]element, next *node) []*node {
	var branches []*node
	for _, one := range alternatives {
		branches = append(branches, link(one, next))
	}
	return branches
}

// link makes nodes from elements; the last one continues with next.
func link(elements []element, next *node) *node {
	for i := len(elements) - 1; i >= 0; i-- {
		e := elements[i]
		if e.group == nil {
			n := e.node
			n.next = next
			next = &n
			continue
		}
		branches := linkAll(e.group, next)
		if e.optional {
			branches = append(branches, next)
		}
		next = &node{branches: branches}
	}
	return next
}
