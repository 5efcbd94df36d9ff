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
	w.write("base/chat_template.jinja", string(plain))
	w.write("base/tokenizer_config.json", `{"eos_token": "<|im_end|>", "bos_token": null}`)
	s := w.spec()
	s.Model.Codec, s.Model.ToolParser = spec.CodecTemplate, "hermes"
	_, err = do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(s))
	requireRefused(t, err, "model.codec", "the chat template leaves out the tools that are offered", "model.tool_parser hermes")
	s.Model.ToolParser = ""
	w.prepare(s)
}
