package update

import (
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
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
