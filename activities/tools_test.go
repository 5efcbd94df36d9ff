package activities_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/spec"
)

func TestARunWhoseModelWouldNeverSeeItsToolsIsRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	tokenizer, err := os.ReadFile(filepath.Join("..", "model", "tokenizer", "testdata", "qwen.json"))
	require.NoError(t, err)
	plain, err := os.ReadFile(filepath.Join("..", "dialog", "testdata", "templates", "plain.jinja"))
	require.NoError(t, err)
	w.write("base/tokenizer.json", string(tokenizer))
	w.write("base/config.json", `{"vocab_size": 720}`)
	w.write("base/chat_template.jinja", string(plain))
	w.write("base/tokenizer_config.json", `{"eos_token": "<|im_end|>", "bos_token": null}`)
	s := w.spec()
	s.Model.Codec, s.Model.ToolParser = spec.CodecTemplate, "hermes"
	_, err = do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(s))
	requireRefused(t, err, "model.codec", "the chat template leaves out the tools that are offered", "model.tool_parser hermes")
	s.Model.ToolParser = ""
	w.prepare(s)
}

func TestARunHasATemplateOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	tokenizer, err := os.ReadFile(filepath.Join("..", "model", "tokenizer", "testdata", "qwen.json"))
	require.NoError(t, err)
	w.write("base/tokenizer.json", string(tokenizer))
	w.write("base/config.json", `{"vocab_size": 720}`)
	w.write("mine.jinja", "a\n{{ }}")
	s := w.spec()
	s.Model.Codec, s.Model.ToolParser, s.Model.Template = spec.CodecTemplate, "hermes", "mine.jinja"
	_, err = do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(s))
	requireRefused(t, err, "model.template", "line 2, column 4: syntax error")
	tools, err := os.ReadFile(filepath.Join("..", "examples", "templates", "chatml-tools.jinja"))
	require.NoError(t, err)
	w.write("mine.jinja", string(tools))
	prepared := w.prepare(s)
	require.Regexp(t, "^template:sha256:[0-9a-f]{64}$", prepared.Spec.Model.Codec)
	w.write("mine.jinja", "changed while the run goes on")
	require.Equal(t, prepared.Spec, w.prepare(s).Spec)
}
