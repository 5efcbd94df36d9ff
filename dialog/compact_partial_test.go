package dialog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

func TestPartialTextIsNeverTakenBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tools := drawTools(t)
		bytes := rapid.Map(rapid.SampledFrom([]string{"a", "é", "\xe2", "\x82", "\xac", "\xff", "{}"}), encode)
		rest := rapid.Map(rapid.OneOf(rapid.Int32Range(0, 8), rapid.Just(tokenizer.ToolCall), rapid.Int32Range(-1, 300)), func(id int32) []int32 { return []int32{id} })
		var completion []int32
		for _, ids := range rapid.SliceOf(rapid.OneOf(bytes, bytes, rest)).Draw(t, "completion") {
			completion = append(completion, ids...)
		}
		whole, _ := dialog.Compact().Parse(completion, tools, numbered)
		said := ""
		for n := range len(completion) + 1 {
			now := dialog.Compact().Partial(completion[:n], tools)
			require.True(t, strings.HasPrefix(now, said), "%q was said, now %q", said, now)
			require.True(t, strings.HasPrefix(whole.Content, now), "%q was said of %q", now, whole.Content)
			said = now
		}
	})
}

func TestPartialTextComesWithItsCharacters(t *testing.T) {
	t.Parallel()
	one := []dialog.Tool{calculator}
	for want, completion := range map[string][]int32{
		"":           join("\xe2\x82"),
		"a":          join("a\xe2\x82"),
		"a€":         join("a€"),
		"a\uFFFDb":   join("a\xe2\x82b"),
		"\uFFFD":     join("\xff"),
		"so":         join("so", tokenizer.ToolCall, "1+1"),
		"so then":    join("so then", tokenizer.ToolCall, "1+1", tokenizer.End),
		"no<arg>":    join("no", tokenizer.Argument, tokenizer.End, "more"),
		"half\uFFFD": join("half\xe2", tokenizer.ToolCall),
	} {
		require.Equal(t, want, dialog.Compact().Partial(completion, one))
	}
}
