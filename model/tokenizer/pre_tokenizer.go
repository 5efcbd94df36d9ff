package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode"
)

// gpt2Pattern is the pattern of a ByteLevel step that has use_regex.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// splitter passes the pieces of a piece to out, in order.
type splitter func(piece string, out func(string))

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

// readSplitters lists the steps that split a text into pieces. One of them, and
// only one, has to be ByteLevel, the last.
func readSplitters(text json.RawMessage) ([]splitter, error) {
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
	var splitters []splitter
	for i, s := range steps {
		if s.Type == "ByteLevel" && i < len(steps)-1 {
			return nil, fmt.Errorf("%w: pre_tokenizer has ByteLevel before its end", ErrUnsupported)
		}
		more, err := s.splitters()
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer, step %d: %w", i, err)
		}
		splitters = append(splitters, more...)
	}
	return splitters, nil
}

func (s preTokenizer) splitters() ([]splitter, error) {
	switch s.Type {
	case "Split":
		return s.split()
	case "Digits":
		digits := &pattern{&node{set: newSet(false, part{table: unicode.N}), min: 1, max: -1}}
		if s.IndividualDigits {
			digits.start.max = 1
		}
		return []splitter{digits.isolate}, nil
	case "ByteLevel":
		var splitters []splitter
		if s.AddPrefixSpace {
			splitters = append(splitters, beginWithSpace)
		}
		if s.UseRegex == nil || *s.UseRegex {
			p, err := parsePattern(gpt2Pattern)
			if err != nil {
				return nil, err
			}
			splitters = append(splitters, p.isolate)
		}
		return splitters, nil
	}
	return nil, fmt.Errorf("%w: type %q is none of Split, Digits, ByteLevel", ErrUnsupported, s.Type)
}

func (s preTokenizer) split() ([]splitter, error) {
	if s.Pattern.Regex == nil {
		return nil, fmt.Errorf("%w: Split by something else than a Regex", ErrUnsupported)
	}
	p, err := parsePattern(*s.Pattern.Regex)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Behavior == "Isolated":
		return []splitter{p.isolate}, nil
	case s.Behavior == "Removed" && s.Invert:
		return []splitter{p.matches}, nil
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

// matches makes a piece of each match and drops what is between matches. Patterns
// that are used so match everything.
func (p *pattern) matches(piece string, out func(string)) {
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

// splitAll applies splitters one after the other.
func splitAll(splitters []splitter, piece string, out func(string)) {
	if len(splitters) == 0 {
		out(piece)
		return
	}
	splitters[0](piece, func(p string) { splitAll(splitters[1:], p, out) })
}
