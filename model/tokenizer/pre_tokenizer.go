package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// gpt2Pattern is the pattern of a ByteLevel step that has use_regex.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// splitter cuts a piece and passes the parts to out, in order. first is true if the piece
// is at the beginning of the text.
type splitter func(piece string, first bool, out func(string))

// preTokenizer is the field "pre_tokenizer" of a tokenizer.json.
type preTokenizer struct {
	Type     string         `json:"type"`
	Sequence []preTokenizer `json:"pretokenizers"`
	// Split
	Pattern  textPattern `json:"pattern"`
	Behavior string      `json:"behavior"`
	Invert   bool        `json:"invert"`
	// ByteLevel; use_regex is true where it is absent.
	AddPrefixSpace *bool `json:"add_prefix_space"`
	UseRegex       *bool `json:"use_regex"`
	// Metaspace; split is true where it is absent.
	Replacement   string `json:"replacement"`
	PrependScheme string `json:"prepend_scheme"`
	Split         *bool  `json:"split"`
	// Digits
	IndividualDigits bool `json:"individual_digits"`
}

// readSplitters returns the steps that split a text into pieces. ByteLevel has to be the
// last step, and Metaspace the only one. byteLevel is true for ByteLevel and false for
// Metaspace.
func readSplitters(text json.RawMessage) (splitters []splitter, byteLevel bool, err error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, false, nil
	}
	var p preTokenizer
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, false, fmt.Errorf("%w: pre_tokenizer: %w", ErrFormat, err)
	}
	steps := p.Sequence
	if p.Type != "Sequence" {
		steps = []preTokenizer{p}
	}
	if len(steps) == 1 && steps[0].Type == "Metaspace" {
		s, err := steps[0].metaspace()
		return []splitter{s}, false, err
	}
	if len(steps) == 0 || steps[len(steps)-1].Type != "ByteLevel" {
		return nil, false, fmt.Errorf("%w: pre_tokenizer does not end with ByteLevel and is not a Metaspace", ErrUnsupported)
	}
	for i, s := range steps {
		if s.Type == "ByteLevel" && i < len(steps)-1 {
			return nil, false, fmt.Errorf("%w: pre_tokenizer has ByteLevel before its end", ErrUnsupported)
		}
		more, err := s.splitters()
		if err != nil {
			return nil, false, fmt.Errorf("pre_tokenizer, step %d: %w", i, err)
		}
		splitters = append(splitters, more...)
	}
	return splitters, true, nil
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
		if s.AddPrefixSpace != nil && *s.AddPrefixSpace {
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
	return nil, fmt.Errorf("%w: type %q is not one of Split, Digits, ByteLevel", ErrUnsupported, s.Type)
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

// isolate makes a piece of each match and of each text between matches.
func (p *pattern) isolate(piece string, _ bool, out func(string)) {
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

// matches makes a piece of each match and drops the text between matches. The patterns
// that are used in this way match all text.
func (p *pattern) matches(piece string, _ bool, out func(string)) {
	for from := 0; from < len(piece); {
		begin, end := p.find(piece, from)
		if begin < end {
			out(piece[begin:end])
		}
		from = end
	}
}

func beginWithSpace(piece string, _ bool, out func(string)) {
	if piece[0] != ' ' {
		piece = " " + piece
	}
	out(piece)
}

// metaspace replaces spaces by another character, puts one before the text if the scheme
// requires it, and cuts before each of them.
func (s preTokenizer) metaspace() (splitter, error) {
	scheme, added := s.PrependScheme, s.AddPrefixSpace == nil || *s.AddPrefixSpace
	switch {
	case scheme == "" && added:
		scheme = "always"
	case scheme == "" || scheme == "never":
		scheme = "never"
	case !added || scheme != "always" && scheme != "first":
		return nil, fmt.Errorf("%w: Metaspace with prepend_scheme %q, add_prefix_space %v", ErrUnsupported, scheme, added)
	}
	if s.Replacement != space {
		return nil, fmt.Errorf("%w: Metaspace with replacement %q, want %q", ErrUnsupported, s.Replacement, space)
	}
	cut := s.Split == nil || *s.Split
	return func(piece string, first bool, out func(string)) {
		piece = strings.ReplaceAll(piece, " ", space)
		if (scheme == "always" || scheme == "first" && first) && !strings.HasPrefix(piece, space) {
			piece = space + piece
		}
		for cut {
			end := strings.Index(piece[1:], space)
			if end < 0 {
				break
			}
			out(piece[:end+1])
			piece = piece[end+1:]
		}
		out(piece)
	}, nil
}

// splitAll applies splitters, each to the pieces of the one before.
func splitAll(splitters []splitter, piece string, first bool, out func(string)) {
	if len(splitters) == 0 {
		out(piece)
		return
	}
	splitters[0](piece, first, func(p string) { splitAll(splitters[1:], p, first, out) })
}
