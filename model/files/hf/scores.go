package hf

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
)

// scoresKey is the metadata under which a file of scores holds its JSON.
const scoresKey = "scores"

// scoresText is the JSON under scoresKey.
type scoresText struct {
	Format string `json:"format"`
	model.Scores
}

// EncodeScores checks s and returns its file. Equal scores give equal bytes.
func EncodeScores(s model.Scores) ([]byte, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("encode scores: %w", err)
	}
	text, err := json.Marshal(scoresText{model.ScoresFormat, s})
	if err != nil {
		return nil, fmt.Errorf("encode scores: %w", err)
	}
	var out bytes.Buffer
	arrays := []Array{NewArray("logprobs", s.Logprobs), NewArray("entropies", s.Entropies)}
	if err := WriteArrays(&out, arrays, map[string]string{scoresKey: string(text)}); err != nil {
		return nil, fmt.Errorf("encode scores: %w", err)
	}
	return out.Bytes(), nil
}

// DecodeScores reads and checks a result of EncodeScores. It ignores arrays that it does
// not know.
func DecodeScores(file []byte) (model.Scores, error) {
	s, err := decodeScores(file)
	if err != nil {
		return model.Scores{}, fmt.Errorf("decode scores: %w", err)
	}
	return s, nil
}

func decodeScores(file []byte) (model.Scores, error) {
	arrays, metadata, err := ReadArrays(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return model.Scores{}, err
	}
	var text scoresText
	if err := json.Unmarshal([]byte(metadata[scoresKey]), &text); err != nil {
		return model.Scores{}, fmt.Errorf("%w: metadata %q: %w", ErrFormat, scoresKey, err)
	}
	if text.Format != model.ScoresFormat {
		return model.Scores{}, fmt.Errorf("%w: format is %q, want %q", ErrFormat, text.Format, model.ScoresFormat)
	}
	s := text.Scores
	if s.Logprobs, err = Find[float32](arrays, "logprobs"); err != nil {
		return model.Scores{}, err
	}
	if s.Entropies, err = Find[float32](arrays, "entropies"); err != nil {
		return model.Scores{}, err
	}
	return s, s.Check()
}
