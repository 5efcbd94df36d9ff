package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
