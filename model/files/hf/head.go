package hf

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/model"
)

// A critic is stored as the class of transformers that classifies tokens, with one label.
// The head of that class is a linear layer with bias. Other trainers store critics in the
// same way.
const (
	choosesTokens    = "ForCausalLM"
	classifiesTokens = "ForTokenClassification"
)

// head holds the fields of a config.json that describe the layer on top of the trunk.
type head struct {
	Architectures []string          `json:"architectures"`
	IDToLabel     map[string]string `json:"id2label"`
	NumLabels     int               `json:"num_labels"`
}

func (h head) valueHead() (bool, error) {
	for _, class := range h.Architectures {
		if !strings.HasSuffix(class, classifiesTokens) {
			continue
		}
		const unsaid = 2 // transformers' default
		if n := cmp.Or(len(h.IDToLabel), h.NumLabels, unsaid); n != 1 {
			return false, fmt.Errorf("%w: config.json: %s with %d labels, want 1", ErrUnsupported, class, n)
		}
		return true, nil
	}
	return false, nil
}

// labels holds the outputs of a head in the form of transformers.
type labels struct {
	IDToLabel map[string]string `json:"id2label,omitempty"`
	LabelToID map[string]int    `json:"label2id,omitempty"`
}

// headOf returns the end of the class's name, and the labels.
func headOf(a model.Architecture) (string, labels) {
	if a.ValueHead {
		return classifiesTokens, labels{map[string]string{"0": "value"}, map[string]int{"value": 0}}
	}
	return choosesTokens, labels{}
}
