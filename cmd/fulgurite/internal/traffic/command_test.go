package traffic

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/run/traffic"
)

func TestWhatPeopleWroteCantChangeTheTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	const bad = "a\x1b[31mb\nc\u202e"
	corrected := bad
	printConversation(&terminal.Terminal{Out: &out}, traffic.Row{
		Conversation: "demo/served-0/0/0/1", Name: bad, Key: bad, User: bad,
		Replies: []traffic.Reply{{ID: bad, Text: bad, Messages: []traffic.Message{{Role: bad, Name: bad, Content: bad, Reasoning: bad, ToolCalls: bad}}, Choices: []traffic.Message{{Content: bad}}}},
		Feedback: []traffic.Judgment{
			{Reply: bad, CorrectedText: &corrected, Comment: bad, Labels: []string{bad}, PreferredOver: bad, User: bad}, {Comment: "on all of it"},
		},
	})
	require.Contains(t, out.String(), "    a\\x1b[31mb\n    c\\u202e\n")
	require.NotContains(t, out.String(), "\x1b")
	require.NotContains(t, out.String(), "\u202e")
	require.Contains(t, out.String(), "feedback on the conversation")
	require.Contains(t, out.String(), "    on all of it\n")
}
