package tokenizer

import (
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
