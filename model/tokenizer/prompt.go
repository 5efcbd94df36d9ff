package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// EncodePrompt returns the ids of a text that is a whole prompt: special tokens are found
// in it, and the tokens that the tokenizer's post-processor puts around a text, such as
// the one that begins it, are added. A text that already begins with them does not get
// them twice. The error wraps ErrUnsupported if the post-processor is of a kind that BPE
// does not know.
func (b *BPE) EncodePrompt(text string) ([]int32, error) {
	if b.around.unknown != nil {
		return nil, b.around.unknown
	}
	ids := b.EncodeSpecial(text)
	if n := len(b.around.before); n > len(ids) || !slices.Equal(b.around.before, ids[:n]) {
		ids = slices.Concat(b.around.before, ids)
	}
	return append(ids, b.around.after...), nil
}

// surroundings are the tokens that a post-processor puts around a text.
type surroundings struct {
	before, after []int32
	unknown       error // the post-processor is not known
}

// postProcessor is the setting post_processor of a tokenizer.json.
type postProcessor struct {
	Type       string          `json:"type"`
	Processors []postProcessor `json:"processors"` // of a Sequence
	Single     []struct {      // of a TemplateProcessing
		SpecialToken *struct {
			ID string `json:"id"`
		}
		Sequence *struct{}
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
	CLS *markerToken `json:"cls"` // of BertProcessing and RobertaProcessing
	SEP *markerToken `json:"sep"`
}

// markerToken is a token as the pair of its text and its id.
type markerToken struct{ id int32 }

// UnmarshalJSON implements json.Unmarshaler.
func (m *markerToken) UnmarshalJSON(text []byte) error {
	var name string
	pair := []any{&name, &m.id}
	if err := json.Unmarshal(text, &pair); err != nil || len(pair) != 2 {
		return fmt.Errorf("post_processor: want a token as its text and its id, not %s", text)
	}
	return nil
}

// surroundings returns the tokens around a text. Only one processor of a sequence may add
// some: the reference takes what the first one returns for a pair of texts.
func (p *postProcessor) surroundings() surroundings {
	if p == nil {
		return surroundings{}
	}
	unknown := func(format string, arguments ...any) surroundings {
		return surroundings{unknown: fmt.Errorf("%w: post_processor: %s", ErrUnsupported, fmt.Sprintf(format, arguments...))}
	}
	var s surroundings
	switch p.Type {
	case "ByteLevel": // only changes where tokens count as beginning
	case "Sequence":
		for _, one := range p.Processors {
			more := one.surroundings()
			switch added := len(s.before) + len(s.after); {
			case more.unknown != nil:
				return more
			case added == 0:
				s = more
			case len(more.before)+len(more.after) > 0:
				return unknown("several processors of a sequence add tokens")
			}
		}
	case "TemplateProcessing":
		into := &s.before
		for _, piece := range p.Single {
			switch {
			case piece.Sequence != nil && into == &s.before:
				into = &s.after
			case piece.SpecialToken == nil:
				return unknown("the template has something other than one text and special tokens")
			default:
				token, ok := p.SpecialTokens[piece.SpecialToken.ID]
				if !ok {
					return unknown("the template has the unknown token %q", piece.SpecialToken.ID)
				}
				*into = append(*into, token.IDs...)
			}
		}
		if into == &s.before {
			return unknown("the template has no text")
		}
	case "BertProcessing", "RobertaProcessing":
		if p.CLS == nil || p.SEP == nil {
			return unknown("%s has no tokens", p.Type)
		}
		s.before, s.after = []int32{p.CLS.id}, []int32{p.SEP.id}
	default:
		return unknown("type is %q", p.Type)
	}
	return s
}
