package arithmetic_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/tasks/arithmetic"
)

func TestDemonstrationsUseOnlyTheTrainSplit(t *testing.T) {
	t.Parallel()
	d := arithmetic.Demonstrations{Seed: 5, Updates: 10}
	for update := range 10 {
		for _, g := range d.Batch(update, 200) {
			require.Equal(t, arithmetic.Train, arithmetic.SplitOf(g.Messages[0].Content))
		}
	}
}

func TestDemonstrationsAreRightWithTheToolAndWrongWithout(t *testing.T) {
	t.Parallel()
	operands := map[bool]int{}
	for _, g := range (arithmetic.Demonstrations{Seed: 5, Updates: 10}).Batch(9, 500) {
		expression := g.Messages[0].Content
		value, err := arithmetic.Evaluate(expression)
		require.NoError(t, err)
		require.Equal(t, []dialog.Tool{arithmetic.Tool()}, g.Tools)
		last := g.Messages[len(g.Messages)-1]
		require.Equal(t, dialog.Assistant, last.Role)
		if len(g.Messages) == 2 {
			require.NotEqual(t, strconv.Itoa(value), last.Content)
			continue
		}
		require.Len(t, g.Messages, 4)
		var arguments struct{ Expression string }
		call := g.Messages[1].ToolCalls[0]
		require.NoError(t, json.Unmarshal([]byte(call.Function.Arguments), &arguments))
		require.Equal(t, expression, arguments.Expression)
		require.Equal(t, call.ID, g.Messages[2].ToolCallID)
		require.Equal(t, strconv.Itoa(value), g.Messages[2].Content)
		require.Equal(t, strconv.Itoa(value), last.Content)
		operands[len(expression) > 5]++
	}
	require.Len(t, operands, 2, "two and three operands")
}

// The shares are of 2,000 dialogs, so their standard deviation is about 0.01 at most.
func TestToolUseFallsAfterFourFifthsOfTheUpdates(t *testing.T) {
	t.Parallel()
	share := func(update int) float64 {
		used := 0
		for _, g := range (arithmetic.Demonstrations{Seed: 1, Updates: 500}).Batch(update, 2000) {
			if len(g.Messages) == 4 {
				used++
			}
		}
		return float64(used) / 2000
	}
	require.InDelta(t, 0.90, share(0), 0.05)
	require.InDelta(t, 0.90, share(399), 0.05)
	require.InDelta(t, 0.25, share(400), 0.05)
	require.InDelta(t, 0.25, share(499), 0.05)
}

func TestADialogDependsOnSeedUpdateAndPlaceAlone(t *testing.T) {
	t.Parallel()
	d := arithmetic.Demonstrations{Seed: 1, Updates: 100}
	require.Equal(t, d.Batch(3, 8), d.Batch(3, 8))
	require.Equal(t, d.Batch(3, 8), d.Batch(3, 64)[:8])
	require.NotEqual(t, d.Batch(3, 8), d.Batch(4, 8))
	require.NotEqual(t, d.Batch(3, 8), arithmetic.Demonstrations{Seed: 2, Updates: 100}.Batch(3, 8))
}

// A conversation has to fit the built-in model, whose context is 64 tokens.
func TestDemonstrationsFitTheCompactCodec(t *testing.T) {
	t.Parallel()
	longest := 0
	for _, g := range (arithmetic.Demonstrations{Seed: 1, Updates: 1}).Batch(0, 2000) {
		tokens, trained, err := dialog.Compact().Demonstration(g)
		require.NoError(t, err)
		require.Len(t, trained, len(tokens))
		longest = max(longest, len(tokens))
	}
	require.LessOrEqual(t, longest, 48)
}
