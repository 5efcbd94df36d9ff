package update

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// TrainedTokens returns the tokens whose rows model.lora.trainable_tokens has trained, in
// the order of the spec. codec is the codec of the run. Errors are InvalidErrors.
func TrainedTokens(m spec.Model, codec dialog.Codec) ([]int32, error) {
	names := m.LoRA.TrainableTokens
	if slices.Equal(names, []string{spec.TokensAuto}) {
		marks, err := findTwins(m.Base, codec)
		if err != nil {
			return nil, Invalid(fmt.Errorf("model.lora.trainable_tokens: %s: %w", spec.TokensAuto, err))
		}
		return marks.tokens, nil
	}
	var tokens []int32
	for i, name := range names {
		id, ok := tokenOf(codec, name)
		if !ok {
			return nil, Invalid(fmt.Errorf("model.lora.trainable_tokens[%d]: the model has no token %q: give the text of one token, such as <tool_call>, or its id as text", i, name))
		}
		if slices.Contains(tokens, id) {
			return nil, Invalid(fmt.Errorf("model.lora.trainable_tokens[%d]: %q is token %d, which is named before: name each token once", i, name, id))
		}
		tokens = append(tokens, id)
	}
	return tokens, nil
}

// tokenOf finds a token by its text or its id. The tokens of a built-in codec have ids
// alone.
func tokenOf(codec dialog.Codec, name string) (int32, bool) {
	if sparse, ok := codec.(dialog.Sparse); ok {
		return sparse.TokenID(name)
	}
	n, err := strconv.ParseInt(name, 10, 32)
	return int32(n), err == nil && n >= 0 && int(n) < codec.VocabSize()
}

// AdapterOf returns the numbers of an adapter that the spec describes and that trains the
// rows of tokens.
func AdapterOf(l spec.LoRA, tokens []int32) model.LoRA {
	a := model.LoRA{Rank: l.Rank, Alpha: l.Alpha, Targets: l.Targets, BasePrecision: model.Precision(l.BasePrecision), Tokens: tokens}
	if a.BasePrecision == model.F32 {
		a.BasePrecision = "" // the same as if the spec does not set it
	}
	return a
}

// twinMarks are marks of tool calls whose rows of the output layer are those of other
// tokens, too.
type twinMarks struct {
	tokens []int32
	number int      // of other tokens with the row of one of them
	others []string // texts of some of those
}

// findTwins compares the marks of the codec's tool calls with all other tokens of the
// model in a directory. A format whose calls need no marks has none.
func findTwins(dir string, codec dialog.Codec) (found twinMarks, err error) {
	sparse, ok := codec.(dialog.Sparse)
	if !ok || !slices.Contains([]string{"hermes", "qwen3_xml"}, sparse.ToolFormat()) || len(sparse.CallTokens()) == 0 {
		return found, nil
	}
	stored, err := hf.OpenDirectory(dir)
	if err != nil {
		return found, err
	}
	defer func() { _ = stored.Close() }() // only read
	marks := sparse.CallTokens()
	twins, err := stored.Twins(marks, sparse.Unused(stored.Architecture.VocabSize))
	if err != nil {
		return found, err
	}
	for _, mark := range marks {
		t, ok := twins[mark]
		if !ok {
			continue
		}
		found.tokens = append(found.tokens, mark)
		found.number = max(found.number, t.Number)
		for _, other := range t.Tokens {
			if text := codec.Text([]int32{other}); !slices.Contains(marks, other) && !slices.Contains(found.others, text) {
				found.others = append(found.others, text)
			}
		}
	}
	return found, nil
}

// Unlearnable says which marks of the codec's tool calls no adapter of the model in a
// directory can learn to write, because other tokens have the same row of the output
// layer, and the adapter does not train it: trained lists the tokens whose rows it trains.
// It returns "" if there are none.
func Unlearnable(dir string, codec dialog.Codec, trained []int32) (string, error) {
	found, err := findTwins(dir, codec)
	if err != nil {
		return "", err
	}
	var names []string
	for _, mark := range found.tokens {
		if !slices.Contains(trained, mark) {
			names = append(names, codec.Text([]int32{mark}))
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	such := ""
	if len(found.others) > 0 {
		such = ", such as " + strings.Join(found.others[:min(2, len(found.others))], " and ")
	}
	return fmt.Sprintf("in this model the marks of tool calls, %s, have the same row of the output layer as %d other tokens%s: an adapter (model.lora) of linear layers can't learn to tell them apart. "+
		"Train their rows, too: model.lora.trainable_tokens: [auto]; or name a format whose calls need no marks, such as llama3_json, as model.tool_parser with a template that shows it as model.template; "+
		"or train the complete model, without model.lora; or take a base that was trained with tools",
		strings.Join(names, " and "), found.number, such), nil
}
