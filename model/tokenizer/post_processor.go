package tokenizer

import (
	"encoding/json"
	"fmt"
)

// postProcessor holds the parts of a post_processor that add tokens.
type postProcessor struct {
	Type       string          `json:"type"`
	Processors []postProcessor `json:"processors"`
	// Of a TemplateProcessing.
	Single []struct {
		Special *struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
		Sequence *struct {
			ID string `json:"id"`
		} `json:"Sequence"`
	} `json:"single"`
	Specials map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
	// Of a BertProcessing and a RobertaProcessing.
	CLS *textAndID `json:"cls"`
	SEP *textAndID `json:"sep"`
}

// textAndID is a token that a file writes as a list of its text and its id.
type textAndID struct{ id int32 }

// UnmarshalJSON implements json.Unmarshaler.
func (t *textAndID) UnmarshalJSON(text []byte) error {
	var name string
	pair := []any{&name, &t.id}
	if err := json.Unmarshal(text, &pair); err != nil || len(pair) != 2 {
		return fmt.Errorf("post_processor: want a list of a token and its id, not %.100s", text)
	}
	return nil
}

// Around returns the tokens that the post_processor of a tokenizer.json puts before and
// after a text, such as the one that begins a text. Encode and its siblings never add
// them.
func Around(text []byte) (before, after []int32, err error) {
	var f struct {
		PostProcessor *postProcessor `json:"post_processor"`
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if f.PostProcessor == nil {
		return nil, nil, nil
	}
	return f.PostProcessor.around()
}

func (p *postProcessor) around() (before, after []int32, err error) {
	switch p.Type {
	case "ByteLevel": // changes offsets only
		return nil, nil, nil
	case "BertProcessing", "RobertaProcessing":
		if p.CLS == nil || p.SEP == nil {
			return nil, nil, fmt.Errorf("%w: post_processor: %s lacks cls or sep", ErrFormat, p.Type)
		}
		return []int32{p.CLS.id}, []int32{p.SEP.id}, nil
	case "Sequence":
		for i := range p.Processors {
			b, a, err := p.Processors[i].around()
			if err != nil {
				return nil, nil, err
			}
			if len(before)+len(after) > 0 && len(b)+len(a) > 0 {
				// The reference takes what the first one returns for a pair of texts.
				return nil, nil, fmt.Errorf("%w: post_processor: several processors of a Sequence add tokens", ErrUnsupported)
			}
			before, after = append(b, before...), append(after, a...)
		}
		return before, after, nil
	case "TemplateProcessing":
		return p.template()
	}
	return nil, nil, fmt.Errorf("%w: post_processor.type is %q", ErrUnsupported, p.Type)
}

func (p *postProcessor) template() (before, after []int32, err error) {
	texts := 0
	for _, piece := range p.Single {
		if piece.Special == nil {
			texts++
			continue
		}
		special, ok := p.Specials[piece.Special.ID]
		if !ok {
			return nil, nil, fmt.Errorf("%w: post_processor: special_tokens lacks %q", ErrFormat, piece.Special.ID)
		}
		if texts == 0 {
			before = append(before, special.IDs...)
		} else {
			after = append(after, special.IDs...)
		}
	}
	if texts != 1 {
		return nil, nil, fmt.Errorf("%w: post_processor: single has the text %d times, want once", ErrUnsupported, texts)
	}
	return before, after, nil
}
