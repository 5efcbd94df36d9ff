package main

import (
	"os"
	"path/filepath"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// Chat templates of models.
const (
	// withTools writes tools and shows how to call them.
	withTools = `{%- if tools -%}<|im_start|>system
Functions:{%- for tool in tools -%}{{- '\n' + (tool | tojson) -}}{%- endfor -%}
Call one with <tool_call>{"name": its name, "arguments": an object}</tool_call>.<|im_end|>
{% endif -%}` + withCalls
	// withCalls writes messages and the calls in them.
	withCalls = `{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}{%- for call in message.tool_calls -%}
{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\n</tool_call>' -}}
{%- endfor -%}<|im_end|>
{% endfor -%}` + beginsReply
	// withoutTools writes messages alone.
	withoutTools = `{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}` + beginsReply
	beginsReply = `{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}`
	// promisesTools shows how tools are called and never writes them.
	promisesTools = `{#- A call is <tool_call>{"name": ..., "arguments": ...}</tool_call>. -#}
` + withCalls
	// small is no template: it asks for a model with few tokens.
	small = "small"
)

// writeModel makes the directory of a model with random weights.
func writeModel(dir, template string) error {
	a := model.Architecture{
		VocabSize: 768, HiddenSize: 32, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 16, FeedForward: 32,
		MaxPositions: 512, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKNorm: true,
	}
	if template == small {
		a.VocabSize = 100
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := hf.WriteDirectory(dir, a, a.Init(1)); err != nil || template == small {
		return err
	}
	tokenizer, err := os.ReadFile(filepath.Join("model", "tokenizer", "testdata", "qwen.json"))
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"tokenizer.json": string(tokenizer), "chat_template.jinja": template,
		"tokenizer_config.json": `{"eos_token": "<|im_end|>", "bos_token": null}`, "generation_config.json": `{"eos_token_id": [702, 700]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
