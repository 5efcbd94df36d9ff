package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Paragraph is a piece of a corpus.
type Paragraph struct {
	Title string `json:"title"` // may be empty
	Text  string `json:"text"`
}

// ReadParagraphs reads the paragraphs of a file. The file has the questions of MuSiQue
// (with paragraphs), HotpotQA or 2WikiMultihopQA (with context), or is any corpus with
// one paragraph per row (title, text). If there are no paragraphs, the error wraps
// ErrEmpty; other errors are those of Open.
func ReadParagraphs(path string) ([]Paragraph, error) {
	rows, err := readRows(path, "paragraphs", func(fields row, _ place) ([]Paragraph, error) { return paragraphsOf(fields) })
	if err != nil {
		return nil, err
	}
	out := slices.Concat(rows...)
	if len(out) == 0 {
		return nil, fmt.Errorf("read %s: no paragraphs: %w", path, ErrEmpty)
	}
	return out, nil
}

func paragraphsOf(fields row) ([]Paragraph, error) {
	switch {
	case fields.has("paragraphs"):
		return ofMuSiQue(fields["paragraphs"])
	case fields.has("context"):
		return ofHotpotQA(fields["context"])
	case fields.has("text"):
		text, err := fields.text("text")
		p := Paragraph{Text: text}
		if fields.has("title") {
			p.Title = textOf(fields["title"])
		}
		return []Paragraph{p}, err
	}
	return nil, errors.New("neither paragraphs (MuSiQue) nor context (HotpotQA, 2WikiMultihopQA) nor text")
}

func ofMuSiQue(raw json.RawMessage) ([]Paragraph, error) {
	var list []struct {
		Title string `json:"title"`
		Text  string `json:"paragraph_text"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return nil, errors.New("paragraphs is not a list of {title, paragraph_text}")
	}
	out := make([]Paragraph, len(list))
	for i, p := range list {
		if strings.TrimSpace(p.Text) == "" {
			return nil, fmt.Errorf("paragraphs[%d]: no paragraph_text", i)
		}
		out[i] = Paragraph(p)
	}
	return out, nil
}

// ofHotpotQA reads a list of [title, [sentences]], as the data sets' own files have it. The
// copies on Hugging Face have {"title": [titles], "sentences": [[sentences]]} instead, or
// the list as JSON in a text.
func ofHotpotQA(raw json.RawMessage) ([]Paragraph, error) {
	var packed string
	if json.Unmarshal(raw, &packed) == nil {
		raw = json.RawMessage(packed)
	}
	var columns struct {
		Title     []string   `json:"title"`
		Sentences [][]string `json:"sentences"`
		Content   [][]string `json:"content"`
	}
	if json.Unmarshal(raw, &columns) == nil {
		return ofColumns(columns.Title, append(columns.Sentences, columns.Content...))
	}
	var list [][2]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, errors.New(`context is neither a list of [title, sentences] nor {"title": […], "sentences": [[…]]}`)
	}
	var out []Paragraph
	for i, pair := range list {
		var title string
		var sentences []string
		if json.Unmarshal(pair[0], &title) != nil || json.Unmarshal(pair[1], &sentences) != nil {
			return nil, fmt.Errorf("context[%d] is not [title, sentences]", i)
		}
		if text := strings.TrimSpace(strings.Join(sentences, "")); text != "" {
			out = append(out, Paragraph{Title: title, Text: text})
		}
	}
	return out, nil
}

// ofColumns returns the paragraphs of a list of titles and a list of their sentences.
func ofColumns(titles []string, sentences [][]string) ([]Paragraph, error) {
	if len(titles) != len(sentences) {
		return nil, fmt.Errorf("context has %d titles and %d lists of sentences", len(titles), len(sentences))
	}
	var out []Paragraph
	for i, title := range titles {
		if text := strings.TrimSpace(strings.Join(sentences[i], "")); text != "" {
			out = append(out, Paragraph{Title: title, Text: text})
		}
	}
	return out, nil
}
