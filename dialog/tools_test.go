package dialog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
)

func TestTemplatesThatLeaveOutToolsAreRefusedWhereCallsAreRead(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"hermes", "llama", "pythonic", "xml"} {
		c, err := bundle(t, name).Codec(name)
		require.NoError(t, err, name)
		require.NoError(t, dialog.CheckTools(c, name), name)
	}
	b := bundle(t, "plain")
	b.ToolParser = "hermes"
	c, err := b.Codec("plain")
	require.NoError(t, err)
	require.NoError(t, dialog.CheckTools(c, ""), "who reads no calls needs no tools")
	require.ErrorIs(t, dialog.CheckTools(c, "hermes"), dialog.ErrBundle)
	require.ErrorContains(t, dialog.CheckTools(c, "hermes"), "the chat template leaves out the tools that are offered, so model.tool_parser hermes")
}

func TestASingleToolIsHiddenByTheCompactCodecAlone(t *testing.T) {
	t.Parallel()
	asked := []dialog.Message{{Role: dialog.User, Content: "go"}}
	one, two := []dialog.Tool{{Name: "left"}}, []dialog.Tool{{Name: "left"}, {Name: "right"}}
	require.True(t, dialog.HidesTools(dialog.Compact(), asked, one))
	require.False(t, dialog.HidesTools(dialog.Compact(), asked, two))
	c, err := bundle(t, "hermes").Codec("hermes")
	require.NoError(t, err)
	require.False(t, dialog.HidesTools(c, asked, one))
}
