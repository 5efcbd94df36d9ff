package plan_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

func TestPlanSaysWhatATemplateCannotDo(t *testing.T) {
	t.Parallel()
	tokenizer, err := os.ReadFile("../../../../model/tokenizer/testdata/qwen.json")
	require.NoError(t, err)
	hermes, err := os.ReadFile("../../../../dialog/testdata/templates/hermes.jinja")
	require.NoError(t, err)
	rewriting, err := os.ReadFile("../../../../dialog/testdata/templates/rewriting.jinja")
	require.NoError(t, err)
	for name, c := range map[string]struct{ template, more, want string }{
		"sound":         {string(hermes), "", ""},
		"no calls":      {strings.Replace(string(hermes), "message.tool_calls or []", "[]", 1), "", "an agent that offers tools gets status 400: the chat template leaves out calls of earlier turns"},
		"not continued": {string(rewriting), "", "an agent that goes on with a dialog after a reply gets status 400"},
		"variables": {`{% if enable_thinking is false and style.words[1] == 7 %}{{ raise_exception('variables are read') }}{% endif %}` + string(hermes),
			"", "variables are read"},
		"rendered each time": {string(rewriting), "sampling: {history: template}\n", ""},
	} {
		s := setup{t, t.TempDir()}
		a := model.Architecture{
			VocabSize: 768, HiddenSize: 32, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 16, FeedForward: 32,
			MaxPositions: 1024, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKNorm: true,
		}
		require.NoError(t, hf.WriteDirectory(s.path("base"), a, a.Init(1)))
		for file, text := range map[string]string{
			"base/tokenizer.json": string(tokenizer), "base/chat_template.jinja": c.template, "base/tokenizer_config.json": `{"eos_token":"<|im_end|>"}`,
			"spec.yaml": "model: {base: base, codec: template, template_variables: {enable_thinking: false, style: {words: [a, 7]}}}\nagent: {func: calculator}\ntasks: {train: \"arithmetic:train:8\"}\ngrader: {type: exact}\ntraining: {steps: 1, tasks_per_step: 2}\n" + c.more,
		} {
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, file), []byte(text), 0o600))
		}
		p, err := plan.Make(t.Context(), s.path("spec.yaml"))
		if name == "variables" {
			require.ErrorContains(t, err, c.want)
			continue
		}
		require.NoError(t, err, name)
		all := strings.Join(p.Warnings, "\n")
		if c.want == "" {
			require.NotContains(t, all, "status 400: this", name)
			require.NotContains(t, all, "goes on with a dialog", name)
			continue
		}
		require.Contains(t, all, c.want, name)
		require.Contains(t, strings.Join(p.Shared, "\n"), c.want, name)
	}
}
