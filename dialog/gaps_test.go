package dialog_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
)

// turns is a template that writes turns, with what it does about tools.
func turns(tools, call, result string) string {
	return tools + `{%- for message in messages -%}
{%- if message.role == 'tool' -%}` + result + `
{%- elif message.tool_calls -%}<|im_start|>assistant
{% for call in message.tool_calls %}` + call + `{% endfor %}<|im_end|>
{%- else -%}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}`
}

const (
	writesTools  = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>{% endif %}"
	writesCall   = `<tool_call>{{ '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}' }}</tool_call>`
	writesResult = "<|im_start|>user\n{{ message.content }}<|im_end|>"
)

func ofTemplate(t *testing.T, text, parser string) dialog.Codec {
	t.Helper()
	b := bundle(t, "plain")
	b.Template, b.ToolParser = text, parser
	c, err := b.Codec("template:mine")
	require.NoError(t, err)
	return c
}

func TestTemplatesThatLoseTurnsOfToolsAreRefusedWhereToolsAreUsed(t *testing.T) {
	t.Parallel()
	hello := dialog.Message{Role: dialog.User, Content: "Hello"}
	called := []dialog.Message{hello, {Role: dialog.Assistant, ToolCalls: called("calculator", `{"expression":"1+1"}`)}}
	for name, c := range map[string]struct{ template, want string }{
		"no calls":        {turns(writesTools, "", writesResult), "leaves out calls of earlier turns"},
		"names alone":     {turns(writesTools, "<tool_call>{{ call.function.name }} arguments", writesResult), "leaves out calls of earlier turns"},
		"no results":      {turns(writesTools, writesCall, ""), "leaves out results of tools"},
		"results refused": {turns(writesTools, writesCall, "{{ raise_exception('no such role') }}"), "does not render tool calls: "},
	} {
		of := ofTemplate(t, c.template, "hermes")
		require.ErrorContains(t, dialog.GapsOf(of).Tools, c.want, name)
		for _, err := range []error{
			func() error { _, err := of.Prompt([]dialog.Message{hello}, []dialog.Tool{calculator}); return err }(),
			func() error { _, err := of.Prompt(called, nil); return err }(),
			func() error {
				_, err := of.Bridge([]dialog.Message{{Role: dialog.ToolReply, Content: "2"}}, []dialog.Tool{calculator})
				return err
			}(),
		} {
			require.ErrorIs(t, err, dialog.ErrDialog, name)
			require.ErrorContains(t, err, c.want, name)
			require.ErrorContains(t, err, "examples/templates", name)
			require.NotContains(t, err.Error(), "history: template", name)
		}
		require.ErrorContains(t, dialog.CheckTools(of, "hermes"), c.want, name)
		_, err := of.Prompt([]dialog.Message{hello}, nil)
		require.NoError(t, err, "without tools it is used")
	}
	require.Equal(t, dialog.Gaps{}, dialog.GapsOf(ofTemplate(t, turns(writesTools, writesCall, writesResult), "")))
	require.Equal(t, dialog.Gaps{}, dialog.GapsOf(dialog.Compact()))
}

// A template may refuse messages of the system, as Gemma's do.
func TestToolsAreMissedInTemplatesThatRefuseTheSystem(t *testing.T) {
	t.Parallel()
	const refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
	require.ErrorContains(t, dialog.CheckTools(ofTemplate(t, refuses+turns("", writesCall, writesResult), "hermes"), "hermes"), "leaves out the tools that are offered")
	require.NoError(t, dialog.CheckTools(ofTemplate(t, refuses+turns(writesTools, writesCall, writesResult), "hermes"), "hermes"))
	const raises = "{% if tools %}{{ raise_exception('no tools') }}{% endif %}"
	require.ErrorContains(t, dialog.CheckTools(ofTemplate(t, raises+turns("", writesCall, writesResult), "hermes"), "hermes"), "no tools")
}

// mistral writes dialogs in the manner of Mistral's templates, with ids of nine letters
// and digits.
const (
	nine         = `{% if %s is not defined or %s|length != 9 %}{{ raise_exception('ids have nine letters or digits') }}{% endif %}`
	mistralCall  = `{{ '[TOOL_CALLS] [{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + ', "id": "' + call.id + '"}]' }}`
	mistralReply = `[TOOL_RESULTS] {"content": {{ message.content }}, "call_id": "{{ message.tool_call_id }}"}[/TOOL_RESULTS]`
)

func TestIDsAreThoseThatATemplateTakes(t *testing.T) {
	t.Parallel()
	of := func(id string) string { return strings.ReplaceAll(nine, "%s", id) }
	c := ofTemplate(t, turns(writesTools, of("call.id")+mistralCall, of("message.tool_call_id")+mistralReply), "")
	require.Equal(t, dialog.Gaps{}, dialog.GapsOf(c))
	tools := []dialog.Tool{calculator}
	sampled := c.Encode(`So: [TOOL_CALLS] [{"name": "calculator", "arguments": {"expression": "1+1"}, "id": "aB3dE6gH9"}]`)
	reply, problem := c.Parse(append(sampled, c.Stop()[0]), tools, func(k int) string { return fmt.Sprintf("call_of_many_letters_%d", k) })
	require.Empty(t, problem)
	require.Equal(t, "So:", reply.Content)
	require.Equal(t, `{"expression": "1+1"}`, reply.ToolCalls[0].Function.Arguments)

	ask := dialog.Message{Role: dialog.User, Content: "1+1?"}
	result := dialog.Message{Role: dialog.ToolReply, Content: "2", ToolCallID: reply.ToolCalls[0].ID}
	bridge, err := c.Bridge([]dialog.Message{result}, tools)
	require.NoError(t, err)
	whole, err := c.Prompt([]dialog.Message{ask, reply, result}, tools)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(c.Text(whole), c.Text(bridge)))
	ids := regexp.MustCompile(`id": "([0-9A-Za-z]{9})"`).FindAllStringSubmatch(c.Text(whole), -1)
	require.Len(t, ids, 2)
	require.Equal(t, ids[0][1], ids[1][1], "the result names its call")

	result.ToolCallID = "aB3dE6gH9"
	bridge, err = c.Bridge([]dialog.Message{result}, tools)
	require.NoError(t, err)
	require.Contains(t, c.Text(bridge), "aB3dE6gH9", "an id that fits stays")
}

func TestCallsWithoutArgumentsHaveNone(t *testing.T) {
	t.Parallel()
	c := codec(t, "hermes")
	for arguments, want := range map[string]string{"": "{}", " \n": "{}", "null": "{}", "{}": "{}", "[1]": `{"_raw": "[1]"}`, "x": `{"_raw": "x"}`} {
		ids, err := c.Prompt([]dialog.Message{{Role: dialog.User, Content: "go"}, {Role: dialog.Assistant, ToolCalls: called("calculator", arguments)}}, []dialog.Tool{calculator})
		require.NoError(t, err)
		require.Contains(t, c.Text(ids), `"arguments": `+want+"}", arguments)
	}
}

func TestVariablesOfTheTemplateAreThoseOfTheBundle(t *testing.T) {
	t.Parallel()
	b := bundle(t, "plain")
	b.Template = turns("{% if enable_thinking is defined and not enable_thinking %}<|im_start|>no thoughts, {{ style.tone }}<|im_end|>{% endif %}", "", "")
	prompt := func(b dialog.Bundle) (dialog.Codec, string) {
		c, err := b.Codec("template:x")
		require.NoError(t, err)
		ids, err := c.Prompt([]dialog.Message{{Role: dialog.User, Content: "Hi"}}, nil)
		require.NoError(t, err)
		return c, c.Text(ids)
	}
	c, text := prompt(b)
	require.NotContains(t, text, "no thoughts")
	value, used := c.(dialog.Variables).Variable("enable_thinking")
	require.True(t, used)
	require.Empty(t, value)
	b.Variables = []byte(`{"enable_thinking":false,"style":{"tone":"<|im_end|>"}}`)
	c, text = prompt(b)
	require.Contains(t, text, "no thoughts, <|im_end|>", "what a run says is no user's text")
	value, used = c.(dialog.Variables).Variable("enable_thinking")
	require.True(t, used)
	require.JSONEq(t, "false", string(value))
	_, used = c.(dialog.Variables).Variable("thinking")
	require.False(t, used)
}
