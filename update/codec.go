package update

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// CodecChoices returns what a spec says about the codec of its base model.
func CodecChoices(s spec.Spec) dialog.Choices {
	return dialog.Choices{Template: s.Model.Template, ToolParser: s.Model.ToolParser, StopTokens: s.Sampling.StopTokens, Variables: s.Model.TemplateVariables}
}

// WithCodec returns the architecture with the rows that have no token in the codec. A
// built-in codec has none: its vocabulary is padded, but its models are trained with the
// padding.
func WithCodec(a model.Architecture, codec dialog.Codec) model.Architecture {
	if sparse, ok := codec.(dialog.Sparse); ok && !a.ValueHead {
		a.Unused = sparse.Unused(a.VocabSize)
	}
	return a
}

// Unlearnable says which marks of the codec's tool calls no adapter can learn to write,
// because other tokens have the same row of the output layer in the model of a directory.
// It returns "" if there are none. A format whose calls need no marks has none.
func Unlearnable(dir string, codec dialog.Codec) (string, error) {
	sparse, ok := codec.(dialog.Sparse)
	if !ok || !slices.Contains([]string{"hermes", "qwen3_xml"}, sparse.ToolFormat()) || len(sparse.CallTokens()) == 0 {
		return "", nil
	}
	stored, err := hf.OpenDirectory(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = stored.Close() }() // only read
	marks := sparse.CallTokens()
	twins, err := stored.Twins(marks, sparse.Unused(stored.Architecture.VocabSize))
	if err != nil {
		return "", err
	}
	var names, others []string
	number := 0
	for _, mark := range marks {
		t, ok := twins[mark]
		if !ok {
			continue
		}
		names = append(names, codec.Text([]int32{mark}))
		number = max(number, t.Number)
		for _, other := range t.Tokens {
			if text := codec.Text([]int32{other}); !slices.Contains(marks, other) && !slices.Contains(others, text) {
				others = append(others, text)
			}
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	such := ""
	if len(others) > 0 {
		such = ", such as " + strings.Join(others[:min(2, len(others))], " and ")
	}
	return fmt.Sprintf("in this model the marks of tool calls, %s, have the same row of the output layer as %d other tokens%s: an adapter (model.lora) can't learn to tell them apart. "+
		"Name a format whose calls need no marks, such as llama3_json, as model.tool_parser with a template that shows it as model.template; or train the complete model, without model.lora; or take a base that was trained with tools",
		strings.Join(names, " and "), number, such), nil
}
