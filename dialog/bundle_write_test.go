package dialog_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
)

func TestAWrittenBundleIsReadAsTheSameCodec(t *testing.T) {
	t.Parallel()
	for _, family := range families() {
		b := bundle(t, family)
		b.Stop, b.ToolTemplate = []int32{1, 2}, b.Template+"{# with tools #}"
		dir := t.TempDir()
		require.NoError(t, b.WriteDirectory(dir), family)
		read, err := dialog.ReadBundle(dir)
		require.NoError(t, err, family)
		require.Equal(t, b.Template, read.Template, family)
		require.Equal(t, b.ToolTemplate, read.ToolTemplate, family)
		require.Equal(t, b.Special["bos_token"], read.Special["bos_token"])
		require.NotEmpty(t, read.Special["eos_token"], "other tools want one")
		want, err := b.Codec("template:x")
		require.NoError(t, err)
		got, err := read.Codec("template:x")
		require.NoError(t, err)
		require.ElementsMatch(t, want.Stop(), got.Stop(), family)
		require.Equal(t, want.Stop()[0], got.Stop()[0], family)
		said := []dialog.Message{{Role: dialog.User, Content: "Grüße, 3 + 4?"}}
		wanted, err := want.Prompt(said, nil)
		require.NoError(t, err)
		prompt, err := got.Prompt(said, nil)
		require.NoError(t, err)
		require.Equal(t, wanted, prompt, family)
	}
	require.Error(t, dialog.Bundle{}.WriteDirectory(t.TempDir()), "there is nothing to write")
}

// The test needs the path of a Python that has transformers in FULGURITE_TRANSFORMERS.
// .ci/servers installs one.
func TestTransformersReadsAWrittenBundle(t *testing.T) {
	t.Parallel()
	python := os.Getenv("FULGURITE_TRANSFORMERS")
	if python == "" {
		t.Skip("no FULGURITE_TRANSFORMERS")
	}
	const script = `
import json, sys
from transformers import AutoTokenizer, GenerationConfig
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
dialog = json.loads(sys.argv[2])
print(json.dumps({
    "prompt": tokenizer.apply_chat_template(dialog, add_generation_prompt=True, return_dict=False),
    "stop": GenerationConfig.from_pretrained(sys.argv[1]).eos_token_id,
    "end": tokenizer.eos_token_id,
}))`
	for _, family := range families() {
		b := bundle(t, family)
		dir := t.TempDir()
		require.NoError(t, b.WriteDirectory(dir), family)
		said := []dialog.Message{{Role: dialog.System, Content: "Be brief."}, {Role: dialog.User, Content: "Grüße, 3 + 4?  don't 🎉"}}
		asked, err := json.Marshal(said)
		require.NoError(t, err)
		command := exec.CommandContext(t.Context(), python, "-c", script, dir, string(asked))
		command.Env = append(os.Environ(), "HF_HUB_OFFLINE=1")
		output, err := command.Output()
		require.NoError(t, err, family)
		var got struct {
			Prompt, Stop []int32
			End          int32
		}
		require.NoError(t, json.Unmarshal(output, &got), "%s: %s", family, output)
		c, err := b.Codec("template:x")
		require.NoError(t, err)
		prompt, err := c.Prompt(said, nil)
		require.NoError(t, err)
		require.Equal(t, prompt, got.Prompt, family)
		require.Equal(t, c.Stop(), got.Stop, family)
		require.Contains(t, c.Stop(), got.End, family)
	}
}
