package dialog_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
)

// chatML is the path of the template that examples use for models whose own template has
// no tools.
var chatML = filepath.Join("..", "examples", "templates", "chatml-tools.jinja")

// withoutTemplate returns the directory of a model that has no chat template.
func withoutTemplate(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), bundle(t, "hermes").Tokenizer, 0o600))
	return dir
}

func TestATemplateOfOnesOwnGivesAModelToolsThatItsDirectoryLacks(t *testing.T) {
	t.Parallel()
	dir := withoutTemplate(t)
	_, _, err := dialog.ReadCodec(dir, "", "")
	require.ErrorIs(t, err, dialog.ErrBundle)
	require.ErrorContains(t, err, "model.codec: ")
	require.ErrorContains(t, err, "no chat template: give a file as model.template")

	c, encoded, err := dialog.ReadCodec(dir, chatML, "hermes")
	require.NoError(t, err)
	require.Equal(t, dialog.BundleName(encoded), c.Name())
	tools := []dialog.Tool{calculator}
	asked := []dialog.Message{{Role: dialog.System, Content: "Be brief."}, {Role: dialog.User, Content: "12*3?"}}
	prompt, err := c.Prompt(asked, tools)
	require.NoError(t, err)
	require.Equal(t, `<|im_start|>system
Be brief.

You may call these functions:
{"name": "calculator", "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}
To call one, write:
<tool_call>
{"name": NAME, "arguments": OBJECT}
</tool_call><|im_end|>
<|im_start|>user
12*3?<|im_end|>
<|im_start|>assistant
`, c.Text(prompt))

	said := special(t, c, "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"12*3\"}}\n</tool_call>"+end(c))
	reply, problem := c.Parse(said, tools, numbered)
	require.Empty(t, problem)
	require.Len(t, reply.ToolCalls, 1)
	later := []dialog.Message{{Role: dialog.ToolReply, Content: "36", ToolCallID: reply.ToolCalls[0].ID}}
	bridge, err := c.Bridge(later, tools)
	require.NoError(t, err)
	whole, err := c.Prompt(append(append(asked, reply), later...), tools)
	require.NoError(t, err)
	require.Equal(t, whole, append(append(prompt, said...), bridge...), "a dialog is continued token by token")
}

func TestATemplateOfOnesOwnIsPartOfTheCodecsName(t *testing.T) {
	t.Parallel()
	dir := withoutTemplate(t)
	text, err := os.ReadFile(chatML)
	require.NoError(t, err)
	other := filepath.Join(t.TempDir(), "other.jinja")
	require.NoError(t, os.WriteFile(other, text, 0o600))
	first, _, err := dialog.ReadCodec(dir, chatML, "")
	require.NoError(t, err)
	same, _, err := dialog.ReadCodec(dir, other, "")
	require.NoError(t, err)
	require.Equal(t, first.Name(), same.Name(), "the path does not count")
	require.NoError(t, os.WriteFile(other, append(text, "{# changed #}"...), 0o600))
	changed, _, err := dialog.ReadCodec(dir, other, "")
	require.NoError(t, err)
	require.NotEqual(t, first.Name(), changed.Name())

	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{% its own is not even read"), 0o600))
	again, _, err := dialog.ReadCodec(dir, chatML, "")
	require.NoError(t, err)
	require.Equal(t, first.Name(), again.Name())
}

func TestABadTemplateOfOnesOwnIsRefusedWithFileAndPlace(t *testing.T) {
	t.Parallel()
	dir := withoutTemplate(t)
	file := filepath.Join(t.TempDir(), "mine.jinja")
	_, _, err := dialog.ReadCodec(dir, file, "")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "model.template, "+file)
	for text, want := range map[string]string{
		"":                                "the file is empty",
		"{{ 'a' }}\n{% if %}{% endif %}":  "model.template, " + file + ": chat template, line 2, column 7: syntax error",
		"{{ messages|unheard_of }}":       "model.template, " + file + ": chat template, line 1, column 13: not supported: filter unheard_of",
		"x\n{{ raise_exception('no!') }}": "model.template: ",
		"a\ncaf\xe9":                      "mine.jinja: line 2 is not UTF-8: save the file in UTF-8 (it may be in Latin-1)",
		"\xff\xfea\x00b\x00":              "it is in UTF-16: save it in UTF-8",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, _, err := dialog.ReadCodec(dir, file, "")
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, os.WriteFile(file, []byte("x\n{{ raise_exception('no!') }}"), 0o600))
	_, _, err = dialog.ReadCodec(dir, file, "")
	require.ErrorContains(t, err, "chat template, line 2, column 19: raised by the template: no!")
	plain, err := os.ReadFile(filepath.Join("testdata", "templates", "plain.jinja"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, plain, 0o600))
	_, _, err = dialog.ReadCodec(dir, file, "hermes")
	require.ErrorContains(t, err, "model.template: ")
	require.ErrorContains(t, err, "leaves out the tools that are offered")
}

func TestAByteOrderMarkIsNoPartOfAModelsFiles(t *testing.T) {
	t.Parallel()
	dir := withoutTemplate(t)
	template, err := os.ReadFile(chatML)
	require.NoError(t, err)
	own := filepath.Join(dir, "chat_template.jinja")
	require.NoError(t, os.WriteFile(own, template, 0o600))
	want, _, err := dialog.ReadCodec(dir, "", "")
	require.NoError(t, err)

	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, append([]byte("\ufeff"), text...), 0o600))
		got, _, err := dialog.ReadCodec(dir, "", "")
		require.NoError(t, err, file)
		require.Equal(t, want.Name(), got.Name(), file)
	}
	got, _, err := dialog.ReadCodec(dir, own, "")
	require.NoError(t, err)
	require.Equal(t, want.Name(), got.Name())

	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte("\xff\xfe{\x00}\x00"), 0o600))
	_, _, err = dialog.ReadCodec(dir, "", "")
	require.ErrorContains(t, err, "tokenizer_config.json: it is in UTF-16: save it in UTF-8")
}
