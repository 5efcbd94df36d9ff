package arithmetic

import (
	"encoding/json"
	"strconv"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/tasks/shuffle"
)

// In the first four fifths of the updates, 9 in 10 demonstrations use the tool, so that
// the model learns to copy an expression. In the rest, 1 in 4 does. The policy then knows
// how to use the tool but seldom does, which leaves something for reinforcement learning
// to find.
const (
	earlyUse = 0.90
	lateUse  = 0.25
)

// Tool returns the calculator that demonstrations use. It has one required string, the
// expression.
func Tool() dialog.Tool {
	return dialog.Tool{
		Name: "calculator", Description: "Evaluates integer arithmetic with +, - and *.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}`),
	}
}

// Demonstrations are the dialogs of a warm start with a number of updates. In each of
// them, a user asks a problem of the train split. The assistant either calls the
// calculator with it and repeats the result, or immediately gives a wrong answer.
type Demonstrations struct {
	Seed    uint64
	Updates int
}

// Batch returns the dialogs of one update, counted from 0. A dialog depends only on Seed,
// the update and its place in the batch.
func (d Demonstrations) Batch(update, size int) []dialog.Dialog {
	use := earlyUse
	if 5*update >= 4*d.Updates {
		use = lateUse
	}
	batch := make([]dialog.Dialog, size)
	for i := range batch {
		draw := &draws{key: shuffle.Key(d.Seed, uint64(update), uint64(i))}
		expression := trainExpression(draw)
		if draw.chance(use) {
			batch[i] = calculated(expression)
		} else {
			batch[i] = guessed(expression, draw)
		}
	}
	return batch
}

// trainExpression draws an expression of the train split, with two or three
// operands equally often.
func trainExpression(draw *draws) string {
	for {
		n := 2 + draw.below(2)
		if expression := nth(n, draw.below(space(n))); SplitOf(expression) == Train {
			return expression
		}
	}
}

func calculated(expression string) dialog.Dialog {
	const id = "call_1"
	arguments, err := json.Marshal(map[string]string{"expression": expression})
	if err != nil {
		panic(err) // a map of strings always encodes
	}
	result := strconv.Itoa(mustEvaluate(expression))
	call := dialog.ToolCall{ID: id, Type: "function", Function: dialog.Function{Name: Tool().Name, Arguments: string(arguments)}}
	return dialog.Dialog{Tools: []dialog.Tool{Tool()}, Messages: []dialog.Message{
		{Role: dialog.User, Content: expression},
		{Role: dialog.Assistant, ToolCalls: []dialog.ToolCall{call}},
		{Role: dialog.ToolReply, Content: result, ToolCallID: id},
		{Role: dialog.Assistant, Content: result},
	}}
}

// guessed returns a dialog whose answer is wrong by 1 to 20.
func guessed(expression string, draw *draws) dialog.Dialog {
	off := 1 + draw.below(20)
	if draw.chance(0.5) {
		off = -off
	}
	return dialog.Dialog{Tools: []dialog.Tool{Tool()}, Messages: []dialog.Message{
		{Role: dialog.User, Content: expression},
		{Role: dialog.Assistant, Content: strconv.Itoa(mustEvaluate(expression) + off)},
	}}
}

// draws generates the random numbers of one dialog.
type draws struct{ key, used uint64 }

func (d *draws) next() uint64 {
	d.used++
	return shuffle.Key(d.key, d.used)
}

// below returns a number from 0 to n-1. For such small n the bias of a remainder is
// negligible.
func (d *draws) below(n int) int { return int(d.next() % uint64(n)) }

func (d *draws) chance(p float64) bool { return float64(d.next()>>11)/(1<<53) < p }
