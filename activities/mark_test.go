package activities_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/prompts/rewrite"
	"github.com/fulgurite/fulgurite/prompts/search"
)

// replaced returns the replacement of a part of a message's text.
func replaced(t *testing.T, all []dialog.Message, message int, prompt, part string) rewrite.Replacement {
	t.Helper()
	start := strings.Index(all[message].Content, part)
	require.GreaterOrEqual(t, start, 0)
	return rewrite.Replacement{Prompt: prompt, Place: rewrite.Place{Message: message}, Start: start, End: start + len(part)}
}

func TestAMarkStandsWhereEachPromptStood(t *testing.T) {
	t.Parallel()
	all := []dialog.Message{{Role: dialog.System, Content: "Write SQL.\nBe brief.\nusers(id)"}, {Role: dialog.User, Content: "Count."}}
	in := []rewrite.Replacement{
		replaced(t, all, 0, "writer", "Write SQL."), replaced(t, all, 0, "style", "Be brief."),
		{Prompt: "tool", Place: rewrite.Place{Message: -1, Tool: "sql"}},
	}
	c := search.Call{Asked: []search.Message{{Role: "system", Text: all[0].Content}, {Role: "user", Text: "Count."}}}
	activities.Mark(&c, 0, all, in)
	require.Equal(t, []string{"style", "tool", "writer"}, c.Prompts)
	require.Equal(t, "[the prompt writer]\n[the prompt style]\nusers(id)", c.Asked[0].Text)
	require.Equal(t, "Count.", c.Asked[1].Text)

	later := search.Call{Asked: []search.Message{{Role: "user", Text: "Count."}}}
	activities.Mark(&later, 1, all, in)
	require.Equal(t, []string{"style", "tool", "writer"}, later.Prompts, "a conversation that goes on still has its prompts")
	require.Equal(t, "Count.", later.Asked[0].Text)

	empty := search.Call{Asked: []search.Message{{Text: "tokens"}}}
	activities.Mark(&empty, -1, nil, in[2:])
	require.Equal(t, "tokens", empty.Asked[0].Text, "the request has no messages")
}
