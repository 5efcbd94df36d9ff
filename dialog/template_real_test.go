package dialog_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
)

// said returns a tool call as it is written by the models that use this parser.
func said(parser string) string {
	switch parser {
	case "qwen3_xml":
		return "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n</function>\n</tool_call>"
	case "llama3_json":
		return `{"name": "weather", "parameters": {"city": "Köln"}}`
	}
	return "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\"}}\n</tool_call>"
}

// toolTemplates are chat templates, by a pattern that the file's name matches. Some were
// written for this repository. The others belong to published models; their names begin
// with the name of the package that they come from.
var toolTemplates = map[string]struct {
	parser     string
	vocabulary string
	// thinks is true if replies begin with thoughts, which the template leaves out after
	// the user's next message.
	thinks bool
	// rewrites is true if the template writes a tool's result differently once another
	// message follows it.
	rewrites bool
}{
	`^hermes\.`:                  {parser: "hermes"},
	`^tagged\.`:                  {parser: "qwen3_xml"},
	`^headers\.`:                 {parser: "llama3_json", vocabulary: "llama3"},
	`^trl-qwen2_5\.`:             {parser: "hermes"},
	`^trl-qwen3_instruct_2507\.`: {parser: "hermes"},
	`^trl-qwen3\.`:               {parser: "hermes"},
	`^trl-qwen3_training\.`:      {parser: "hermes", thinks: true},
	`^llamacpp-Qwen3-Coder\.`:    {parser: "qwen3_xml"},
	`^trl-qwen3_6\.`:             {parser: "qwen3_xml", thinks: true},
	`meta-llama-Llama-3`:         {parser: "llama3_json", vocabulary: "llama3"},
	`Hermes-(2|3).*-tool_use\.`:  {parser: "hermes", rewrites: true},
}

// The test takes a tool dialog through chat templates, each with a vocabulary of its
// family. Every reply has to be read as it was written, and the dialog has to continue
// from its own tokens as if the template had rendered all of it again.
func TestTemplatesHoldAToolDialog(t *testing.T) {
	t.Parallel()
	require.Equal(t, 3, toolDialogs(t, "templates"))
}

// The templates of published models belong to others, so they are not in the repository;
// make golden-templates fetches them.
func TestFetchedTemplatesHoldAToolDialog(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join("jinja", "golden", "fetched", "expected.json")); err != nil {
		t.Skip("make golden-templates fetches templates of published models")
	}
	require.GreaterOrEqual(t, toolDialogs(t, "fetched"), 8)
}

// toolDialogs tests the templates of a folder with a tool dialog and returns their
// number.
func toolDialogs(t *testing.T, folder string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("jinja", "golden", folder, "*.jinja"))
	require.NoError(t, err)
	found := 0
	for pattern, c := range toolTemplates {
		for _, file := range files {
			if !regexp.MustCompile(pattern).MatchString(filepath.Base(file)) {
				continue
			}
			found++
			t.Run(filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				template, err := os.ReadFile(file)
				require.NoError(t, err)
				b := bundle(t, cmp.Or(map[string]string{"llama3": "llama"}[c.vocabulary], "hermes"))
				if b.ToolTemplate = string(template); !strings.Contains(file, "tool_use") {
					b.Template, b.ToolTemplate = b.ToolTemplate, ""
				}
				holdsAToolDialog(t, b, c.parser, c.thinks, c.rewrites)
			})
		}
	}
	return found
}

func holdsAToolDialog(t *testing.T, b dialog.Bundle, parser string, thinks, rewrites bool) {
	t.Helper()
	b.ToolParser = parser
	c, err := b.Codec("template:real")
	require.NoError(t, err)
	tools := []dialog.Tool{{Name: "weather", Description: "Tells the weather.", Parameters: []byte(`{"type":"object","properties":{"city":{"type":"string","description":"Where?"}},"required":["city"]}`)}}
	turns := []dialog.Message{{Role: dialog.System, Content: "Be brief."}, {Role: dialog.User, Content: "How is it in Köln?"}}
	ids, err := c.Prompt(turns, tools)
	require.NoError(t, err)
	for i, text := range []string{said(parser), "It rains. 🌧"} {
		spoken := text
		if thinks {
			spoken = "<think>\nWell.\n</think>\n\n" + text
			if strings.HasSuffix(c.Text(ids), "<think>\n") {
				spoken = strings.TrimPrefix(spoken, "<think>\n")
			}
		}
		completion := append(c.Encode(spoken), c.Stop()[0])
		reply, problem := c.Parse(completion, tools, numbered)
		require.Empty(t, problem)
		ids = append(ids, completion...)
		turns = append(turns, reply)
		later := dialog.Message{Role: dialog.User, Content: "And tomorrow?"}
		if i == 0 {
			require.Len(t, reply.ToolCalls, 1, reply.Content)
			require.JSONEq(t, `{"city":"Köln"}`, reply.ToolCalls[0].Function.Arguments)
			later = dialog.Message{Role: dialog.ToolReply, Content: "rain", ToolCallID: reply.ToolCalls[0].ID}
		} else {
			require.Equal(t, text, reply.Content)
		}
		turns = append(turns, later)
		bridge, err := c.Bridge([]dialog.Message{later}, tools)
		require.NoError(t, err)
		ids = append(ids, bridge...)
		full, err := c.Prompt(turns, tools)
		require.NoError(t, err)
		if (thinks || rewrites) && i == 1 {
			continue
		}
		require.Equal(t, c.Text(full), c.Text(ids), "the template writes the same dialog")
	}
}
