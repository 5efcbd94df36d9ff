package dialog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
)

func TestWhatADialogSharesWithTheOneBeforeCountsItsReply(t *testing.T) {
	t.Parallel()
	say := func(r dialog.Role, text string) dialog.Message { return dialog.Message{Role: r, Content: text} }
	before := []dialog.Message{say(dialog.System, "s"), say(dialog.User, "u")}
	require.Equal(t, 3, dialog.Shared(before, append(before[:2:2], say(dialog.Assistant, "a"), say(dialog.User, "v"))))
	require.Equal(t, 1, dialog.Shared(before, []dialog.Message{before[0], say(dialog.User, "w"), say(dialog.Assistant, "a")}))
	require.Equal(t, 2, dialog.Shared(before, before))
	require.Equal(t, 0, dialog.Shared(nil, before))
}
