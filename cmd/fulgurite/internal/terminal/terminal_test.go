package terminal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
)

func TestNothingOfAnAgentReachesTheTerminalAsACommand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain é 漢 \t'q' \\":  "plain é 漢 \t'q' \\",
		"\x1b]0;title\a":      `\x1b]0;title\a`,
		"a\rb\x00c\x7f\u009b": `a\rb\x00c\x7f\u009b`,
		"right\u202eleft":     `right\u202eleft`,
		"broken \xff":         "broken \uFFFD",
	} {
		require.Equal(t, want, terminal.Escape(text))
	}
}
