package arithmetic

import (
	"encoding/json"
	"strconv"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/tasks/shuffle"
)

// Of the first four fifths of the updates, 9 in 10 demonstrations use the tool,
// so that copying an expression is learned. Of the rest 1 in 4 does: the policy
// then knows how, but seldom wants to, and reinforcement has something to find.
const (
	earlyUse = 0.90
	lateUse  = 0.25
)

// Tool is the calculator that demonstrations use: one required string, the
// expression.
func Tool() dialog.Tool {
	return dialog.Tool{
		Name: "calculator", Description: "Evaluates integer arithmetic with +, - and *.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}`),
	}
}

// Demonstrations are the dialogs of a warm start of so many updates: a user
// gives a problem of the train split, and the assistant either calls the
// calculator with it and repeats the result, or guesses wrong at once.
type Demonstrations struct {
	Seed    uint64
	Updates int
}

// Batch is the dialogs of one update, counted from 0. A dialog depends on Seed,
// update and its place alone.
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

// guessed is wrong by 1 to 20.
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

// draws are the random numbers of one dialog.
type draws struct{ key, used uint64 }

func (d *draws) next() uint64 {
	d.used++
	return shuffle.Key(d.key, d.used)
}

// below is a number from 0 to n-1. For n this small the bias of a remainder is
// beyond notice.
func (d *draws) below(n int) int { return int(d.next() % uint64(n)) }

func (d *draws) chance(p float64) bool { return float64(d.next()>>11)/(1<<53) < p }
