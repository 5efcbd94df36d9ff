package tokenizer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pattern cuts text into pieces. It is the part of regular expressions that
// byte-level tokenizers are published with: alternatives, sets of characters with
// greedy repetition, optional groups, and "not followed by". Repeated groups are
// refused, so the time to match is bounded.
type pattern struct{ start *node }

// node is one step of a match; a nil node is its end.
type node struct {
	set *set
	// min and max bound how many characters of set follow; max < 0 is any number.
	min, max int
	// possessive forbids backtracking.
	possessive bool
	// ahead only looks: the next character, if there is one, is not in set.
	ahead bool
	// branches, if not nil, are tried in order. The fields before are then not used.
	branches []*node
	next     *node
}

// find returns where the first match at or after from begins and ends, or
// len(text) twice if there is none.
func (p *pattern) find(text string, from int) (begin, end int) {
	for begin = from; begin < len(text); {
		if end := p.start.match(text, begin); end >= 0 {
			return begin, end
		}
		_, n := utf8.DecodeRuneInString(text[begin:])
		begin += n
	}
	return len(text), len(text)
}

// match returns where a match that begins at pos ends, or -1.
func (n *node) match(text string, pos int) int {
	for n != nil {
		switch {
		case n.branches != nil:
			return n.branch(text, pos)
		case n.ahead:
			if r, size := utf8.DecodeRuneInString(text[pos:]); size > 0 && n.set.has(r) {
				return -1
			}
		default:
			end, count := n.repeat(text, pos)
			if count < n.min {
				return -1
			}
			if n.next != nil && !n.possessive && count > n.min {
				return n.backtrack(text, end, count)
			}
			pos = end
		}
		n = n.next
	}
	return pos
}

func (n *node) branch(text string, pos int) int {
	for _, b := range n.branches {
		if end := b.match(text, pos); end >= 0 {
			return end
		}
	}
	return -1
}

// repeat steps over as many characters as the set and max allow.
func (n *node) repeat(text string, pos int) (end, count int) {
	for pos < len(text) && count != n.max {
		if b := text[pos]; b < utf8.RuneSelf {
			if !n.set.ascii[b] {
				break
			}
			pos++
			count++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[pos:])
		if !n.set.has(r) {
			break
		}
		pos += size
		count++
	}
	return pos, count
}

// backtrack tries to continue after count characters, then after fewer.
func (n *node) backtrack(text string, pos, count int) int {
	for {
		if end := n.next.match(text, pos); end >= 0 || count == n.min {
			return end
		}
		_, size := utf8.DecodeLastRuneInString(text[:pos])
		pos -= size
		count--
	}
}

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

// set is a set of characters.
type set struct {
	ascii   [utf8.RuneSelf]bool
	parts   []part
	negated bool
}

// part is one member of a set: a range, or the characters of a table.
type part struct {
	low, high rune
	table     *unicode.RangeTable
	// outside means the characters that are not of the table.
	outside bool
}

func newSet(negated bool, parts ...part) *set {
	s := &set{parts: parts, negated: negated}
	for r := range s.ascii {
		s.ascii[r] = s.search(rune(r))
	}
	return s
}

func single(r rune) part { return part{low: r, high: r} }

func (s *set) has(r rune) bool {
	if r >= 0 && r < utf8.RuneSelf {
		return s.ascii[r]
	}
	return s.search(r)
}

func (s *set) search(r rune) bool {
	for _, p := range s.parts {
		if p.has(r) {
			return !s.negated
		}
	}
	return s.negated
}

func (p part) has(r rune) bool {
	if p.table == nil {
		return p.low <= r && r <= p.high
	}
	return category(p.table, r) != p.outside
}

// categories returns the class of characters that has the name in published patterns.
func categories(name string) (*unicode.RangeTable, error) {
	known := []string{"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S"}
	if !slices.Contains(known, name) {
		return nil, fmt.Errorf(`\p{%s}: want one of %s`, name, strings.Join(known, ", "))
	}
	return unicode.Categories[name], nil
}

// category reports whether a character is in a table according to Unicode 16, which the
// reference tokenizers use. Characters that Unicode 17 added are in no class. Unicode 17
// also moved one letter to another class.
func category(table *unicode.RangeTable, r rune) bool {
	if r == '\u0295' && table == unicode.Ll {
		return true
	}
	if r == '\u0295' && table == unicode.Lo {
		return false
	}
	return unicode.Is(table, r) && !unicode.Is(added17, r)
}

// added17 holds the letters, marks, numbers, punctuation and symbols that Unicode 17
// added to Unicode 16.
var added17 = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x088f, 0x088f, 1}, {0x0c5c, 0x0c5c, 1}, {0x0cdc, 0x0cdc, 1}, {0x1acf, 0x1add, 1}, {0x1ae0, 0x1aeb, 1},
		{0x20c1, 0x20c1, 1}, {0x2b96, 0x2b96, 1}, {0xa7ce, 0xa7cf, 1}, {0xa7d2, 0xa7d2, 1}, {0xa7d4, 0xa7d4, 1},
		{0xa7f1, 0xa7f1, 1}, {0xfbc3, 0xfbd2, 1}, {0xfd90, 0xfd91, 1}, {0xfdc8, 0xfdce, 1},
	},
	R32: []unicode.Range32{
		{0x10940, 0x10959, 1}, {0x10ec5, 0x10ec7, 1}, {0x10ed0, 0x10ed8, 1}, {0x10efa, 0x10efb, 1}, {0x11b60, 0x11b67, 1},
		{0x11db0, 0x11ddb, 1}, {0x11de0, 0x11de9, 1}, {0x16ea0, 0x16eb8, 1}, {0x16ebb, 0x16ed3, 1}, {0x16ff2, 0x16ff6, 1},
		{0x187f8, 0x187ff, 1}, {0x18d09, 0x18d1e, 1}, {0x18d80, 0x18df2, 1}, {0x1ccfa, 0x1ccfc, 1}, {0x1ceba, 0x1ced0, 1},
		{0x1cee0, 0x1cef0, 1}, {0x1e6c0, 0x1e6de, 1}, {0x1e6e0, 0x1e6f5, 1}, {0x1e6fe, 0x1e6ff, 1}, {0x1f6d8, 0x1f6d8, 1},
		{0x1f777, 0x1f77a, 1}, {0x1f8d0, 0x1f8d8, 1}, {0x1fa54, 0x1fa57, 1}, {0x1fa8a, 0x1fa8a, 1}, {0x1fa8e, 0x1fa8e, 1},
		{0x1fac8, 0x1fac8, 1}, {0x1facd, 0x1facd, 1}, {0x1faea, 0x1faea, 1}, {0x1faef, 0x1faef, 1}, {0x1fbfa, 0x1fbfa, 1},
		{0x2b73a, 0x2b73f, 1}, {0x2cea2, 0x2cead, 1}, {0x323b0, 0x33479, 1},
	},
}
