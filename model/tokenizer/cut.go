package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode"
)

// gpt2Pattern is the pattern of a ByteLevel step that has use_regex.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// cut hands out the pieces of a piece, in order.
type cut func(piece string, out func(string))

// preTokenizer is the setting of that name in a tokenizer.json.
type preTokenizer struct {
	Type     string         `json:"type"`
	Sequence []preTokenizer `json:"pretokenizers"`
	// Split
	Pattern struct {
		Regex  *string `json:"Regex"`
		String *string `json:"String"`
	} `json:"pattern"`
	Behavior string `json:"behavior"`
	Invert   bool   `json:"invert"`
	// ByteLevel; use_regex is true where it is absent.
	AddPrefixSpace bool  `json:"add_prefix_space"`
	UseRegex       *bool `json:"use_regex"`
	// Digits
	IndividualDigits bool `json:"individual_digits"`
}

// readCuts lists the steps by which a text is cut into pieces. One of them, and
// only one, has to be ByteLevel, the last.
func readCuts(text json.RawMessage) ([]cut, error) {
	var p preTokenizer
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("%w: pre_tokenizer: %w", ErrFormat, err)
	}
	steps := p.Sequence
	if p.Type != "Sequence" {
		steps = []preTokenizer{p}
	}
	if len(steps) == 0 || steps[len(steps)-1].Type != "ByteLevel" {
		return nil, fmt.Errorf("%w: pre_tokenizer does not end with ByteLevel", ErrUnsupported)
	}
	var cuts []cut
	for i, s := range steps {
		if s.Type == "ByteLevel" && i < len(steps)-1 {
			return nil, fmt.Errorf("%w: pre_tokenizer has ByteLevel before its end", ErrUnsupported)
		}
		more, err := s.cuts()
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer, step %d: %w", i, err)
		}
		cuts = append(cuts, more...)
	}
	return cuts, nil
}

func (s preTokenizer) cuts() ([]cut, error) {
	switch s.Type {
	case "Split":
		return s.split()
	case "Digits":
		digits := &pattern{&node{set: newSet(false, part{table: unicode.N}), min: 1, max: -1}}
		if s.IndividualDigits {
			digits.start.max = 1
		}
		return []cut{digits.isolate}, nil
	case "ByteLevel":
		var cuts []cut
		if s.AddPrefixSpace {
			cuts = append(cuts, beginWithSpace)
		}
		if s.UseRegex == nil || *s.UseRegex {
			p, err := parsePattern(gpt2Pattern)
			if err != nil {
				return nil, err
			}
			cuts = append(cuts, p.isolate)
		}
		return cuts, nil
	}
	return nil, fmt.Errorf("%w: type %q is none of Split, Digits, ByteLevel", ErrUnsupported, s.Type)
}

func (s preTokenizer) split() ([]cut, error) {
	if s.Pattern.Regex == nil {
		return nil, fmt.Errorf("%w: Split by something else than a Regex", ErrUnsupported)
	}
	p, err := parsePattern(*s.Pattern.Regex)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Behavior == "Isolated":
		return []cut{p.isolate}, nil
	case s.Behavior == "Removed" && s.Invert:
		return []cut{p.keep}, nil
	}
	return nil, fmt.Errorf("%w: Split with behavior %q, invert %v", ErrUnsupported, s.Behavior, s.Invert)
}

// isolate makes pieces of each match and of what is between matches.
func (p *pattern) isolate(piece string, out func(string)) {
	for from := 0; from < len(piece); {
		begin, end := p.find(piece, from)
		if from < begin {
			out(piece[from:begin])
		}
		if begin < end {
			out(piece[begin:end])
		}
		from = end
	}
}

// keep makes a piece of each match and drops what is between matches. Patterns
// that are used so match everything.
func (p *pattern) keep(piece string, out func(string)) {
	for from := 0; from < len(piece); {
		begin, end := p.find(piece, from)
		if begin < end {
			out(piece[begin:end])
		}
		from = end
	}
}

func beginWithSpace(piece string, out func(string)) {
	if piece[0] != ' ' {
		piece = " " + piece
	}
	out(piece)
}

// inTurn applies cuts one after the other.
func inTurn(cuts []cut, piece string, out func(string)) {
	if len(cuts) == 0 {
		out(piece)
		return
	}
	cuts[0](piece, func(p string) { inTurn(cuts[1:], p, out) })
}
