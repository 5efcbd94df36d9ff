// Package trained reads from the batch of a step what attempts, their calls and their
// tokens were trained on: advantages, the mask, and the log-probability and entropy that
// the trainer's model gave each token before it learned.
//
// It reads no store. It gets a batch and scores, and changes neither.
package trained

import (
	"maps"
	"math"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
)

// Attempt is an attempt in the batch of a step.
type Attempt struct {
	Advantage Mean // of its trained tokens
	Tokens    int  // trained
	// Calls are by Seq.
	Calls map[int]Call
}

// Call holds what a batch, and the trainer that used it, say about the tokens of a call,
// in order. Scores that are not known are NaN.
type Call struct {
	Advantages         []float32
	Sampled            []bool
	Trainer, Entropies []float32
}

// Advantage returns the mean advantage of the call's trained tokens.
func (c Call) Advantage() Mean {
	var m Mean
	for i, sampled := range c.Sampled {
		if sampled {
			m.add(float64(c.Advantages[i]))
		}
	}
	return m
}

// Group returns the attempts at the task of a that are in a batch, by address and without
// their calls.
func Group(batch *model.Batch, a record.Address) map[string]Attempt {
	group := map[int]*Attempt{} // by trajectory
	for i, t := range batch.Trajectories {
		if one, err := record.ParseAddress(t.Attempt); err == nil && one.Kind == a.Kind && one.Task == a.Task {
			group[i] = &Attempt{Tokens: t.Trained}
		}
	}
	for _, row := range batch.Rows {
		if one := group[row.Trajectory]; one != nil {
			one.average(row)
		}
	}
	out := make(map[string]Attempt, len(group))
	for i, one := range group {
		out[batch.Trajectories[i].Attempt] = *one
	}
	return out
}

// Of returns what a batch holds about one attempt, token by token. It returns nil if the
// attempt is not in the batch. scores may be empty.
func Of(batch *model.Batch, a record.Address, scores model.Scores) *Attempt {
	for i, t := range batch.Trajectories {
		if t.Attempt == a.String() {
			one := &Attempt{Tokens: t.Trained, Calls: map[int]Call{}}
			one.add(batch.Rows, i, scores)
			return one
		}
	}
	return nil
}

// average adds the trained tokens of a row to the attempt's mean.
func (a *Attempt) average(row model.BatchRow) {
	for i, sampled := range row.Sampled {
		if sampled {
			a.Advantage.add(float64(row.Advantages[i]))
		}
	}
}

// add adds the tokens of a trajectory from the rows of its batch.
func (a *Attempt) add(rows []model.BatchRow, trajectory int, scores model.Scores) {
	first := 0 // index of the row's first trained token
	for _, row := range rows {
		next := first + row.Trained()
		if row.Trajectory == trajectory {
			a.average(row)
			a.addRow(row, scores, first)
		}
		first = next
	}
}

func (a *Attempt) addRow(row model.BatchRow, scores model.Scores, trained int) {
	for i, seq := range row.Calls {
		trainer, entropy := float32(math.NaN()), float32(math.NaN())
		if row.Sampled[i] {
			if len(scores.Logprobs) > 0 {
				trainer, entropy = scores.Logprobs[trained], scores.Entropies[trained]
			}
			trained++
		}
		if seq < 0 {
			continue
		}
		call := a.Calls[int(seq)]
		call.Advantages, call.Sampled = append(call.Advantages, row.Advantages[i]), append(call.Sampled, row.Sampled[i])
		call.Trainer, call.Entropies = append(call.Trainer, trainer), append(call.Entropies, entropy)
		a.Calls[int(seq)] = call
	}
}

// Merge adds what the batch of another step holds about the attempt, which is a conversation:
// each step learns from other calls of it.
func (a *Attempt) Merge(other *Attempt) {
	a.Advantage.merge(other.Advantage)
	a.Tokens += other.Tokens
	maps.Copy(a.Calls, other.Calls)
}

// Mean is the mean of a value over tokens, with the smallest and the largest value. A
// critic, a judge or a signal may give each call or token its own value.
type Mean struct {
	Value, Low, High float64
	Count            int
}

// add adds the value of one more token.
func (m *Mean) add(v float64) {
	if m.Count == 0 {
		m.Low, m.High = v, v
	}
	m.Count++
	m.Value += (v - m.Value) / float64(m.Count)
	m.Low, m.High = min(m.Low, v), max(m.High, v)
}

// merge adds the values of other tokens.
func (m *Mean) merge(other Mean) {
	switch {
	case other.Count == 0:
		return
	case m.Count == 0:
		*m = other
		return
	}
	m.Count += other.Count
	m.Value += (other.Value - m.Value) * float64(other.Count) / float64(m.Count)
	m.Low, m.High = min(m.Low, other.Low), max(m.High, other.High)
}

// Known returns nil if there are no tokens.
func (m Mean) Known() *Mean {
	if m.Count == 0 {
		return nil
	}
	return &m
}

// String returns the mean as readable text.
func (m Mean) String() string { return format.Signed(&m.Value) }

// Range returns the smallest and the largest value as text, or "" if they look equal.
func (m Mean) Range() string {
	if format.Fixed(m.Low) == format.Fixed(m.High) {
		return ""
	}
	return format.Signed(&m.Low) + " to " + format.Signed(&m.High)
}
