package update

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Attempts reads what attempts recorded.
type Attempts interface {
	Trajectories(ctx context.Context, addresses []record.Address) ([]record.Trajectory, error)
}

// servers has the server that sampled each call of a batch, by trajectory and Seq. A call
// that says nothing about the mismatch is missing.
type servers []map[int32]string

// serversOf reads the servers from the record. It returns nil if the record does not name
// them. If several versions sampled, only calls of the one that limits names are there.
func (m *Maker) serversOf(ctx context.Context, b model.Batch, limits mismatchLimits) (servers, error) {
	if m.Attempts == nil {
		return nil, nil
	}
	addresses := make([]record.Address, len(b.Trajectories))
	for i, t := range b.Trajectories {
		var err error
		if addresses[i], err = record.ParseAddress(t.Attempt); err != nil {
			return nil, Invalid(fmt.Errorf("trajectory %d: %w", i, err))
		}
	}
	all, err := m.Attempts.Trajectories(ctx, addresses)
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which servers sampled: %w", err)
	}
	name := "" // of the sampler in this process, which has no address
	if limits.several {
		name = "built in"
	}
	out := make(servers, len(all))
	for i, t := range all {
		out[i] = map[int32]string{}
		for _, c := range t.History {
			if !limits.several || c.Version == limits.sampled.Number {
				out[i][int32(c.Seq)] = cmp.Or(c.Server, name)
			}
		}
	}
	return out, nil
}

// mismatch is how far the trainer's log-probabilities of some tokens are from those on record.
type mismatch struct {
	server     string
	tokens     int
	sum, worst float64
}

func (m mismatch) mean() float64 { return m.sum / math.Max(1, float64(m.tokens)) }

// byServer measures the mismatch of the trained tokens of some rows of the batch, for
// each server. It uses the trainer's first scores of the tokens. The server with the
// largest mean comes first. Calls without a server are left out.
func (s *tokenScores) byServer(rows []int, of servers) []mismatch {
	found := map[string]*mismatch{}
	if of == nil {
		return nil
	}
	for _, row := range rows {
		r, at := s.batch.Rows[row], s.first[row]
		for i, sampled := range r.Sampled {
			if !sampled {
				continue
			}
			gap := math.Abs(float64(s.Logprobs[at]) - float64(r.Logprobs[i]))
			at++
			name := of[r.Trajectory][r.Calls[i]]
			if name == "" {
				continue
			}
			m := found[name]
			if m == nil {
				m = &mismatch{server: name}
				found[name] = m
			}
			m.tokens, m.sum, m.worst = m.tokens+1, m.sum+gap, math.Max(m.worst, gap)
		}
	}
	var out []mismatch
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[name])
	}
	slices.SortStableFunc(out, func(a, b mismatch) int { return cmp.Compare(b.mean(), a.mean()) })
	return out
}

// sumOf returns the mismatch of all servers together.
func sumOf(all []mismatch) mismatch {
	var out mismatch
	for _, m := range all {
		out.tokens, out.sum, out.worst = out.tokens+m.tokens, out.sum+m.sum, math.Max(out.worst, m.worst)
	}
	return out
}

// putMismatch sets the metrics of the mismatch. Without a token there are none.
func putMismatch(metrics map[string]float64, m mismatch) {
	delete(metrics, "train/mismatch")
	delete(metrics, "train/mismatch_max")
	if m.tokens > 0 {
		metrics["train/mismatch"], metrics["train/mismatch_max"] = m.mean(), m.worst
	}
}

// ofServers is the prefix of the names of metrics that belong to one server.
const ofServers = "train/mismatch/"

// putServers adds the metrics of each server if there are several.
func putServers(out map[string]float64, all []mismatch) {
	if len(all) < 2 {
		return
	}
	for _, m := range all {
		out[ofServers+m.server], out[ofServers+m.server+"_max"] = m.mean(), m.worst
	}
}

// maxNamed is how many servers an error names.
const maxNamed = 4

// textOf returns a description of servers for an error.
func textOf(all []mismatch) string {
	var parts []string
	for _, m := range all[:min(len(all), maxNamed)] {
		parts = append(parts, fmt.Sprintf("%s %.4g (worst token %.4g, of %d)", m.server, m.mean(), m.worst, m.tokens))
	}
	if rest := len(all) - maxNamed; rest > 0 {
		parts = append(parts, fmt.Sprintf("and less at %d others", rest))
	}
	return strings.Join(parts, ", ")
}

const (
	// recordedRows and recordedTokens limit the recorded text in a canary. recordedPrompt
	// limits the prompt before it.
	recordedRows   = 4
	recordedTokens = 64
	recordedPrompt = 1024
)

// canaryText has the rows of a canary that are added to the random tokens. It is nil if
// no rows are added.
type canaryText *[]model.CanaryRow

// canaryOf returns recorded text for a canary of an external server that samples from an
// adapter. Its arithmetic differs from the trainer's, and an adapter has most effect on
// text that it was trained on. The built-in sampler needs no text.
func canaryOf(s spec.Spec, b model.Batch) canaryText {
	if s.Sampling.Server == nil || s.Model.LoRA == nil {
		return nil
	}
	rows := []model.CanaryRow{}
	for i := range b.Rows {
		r := b.Rows[i]
		begin := 0
		for begin < len(r.Sampled) && !r.Sampled[begin] {
			begin++
		}
		end := min(begin+recordedTokens, len(r.Tokens)-1) // a server needs room for one token more
		if begin == 0 || begin >= end || begin > recordedPrompt {
			continue
		}
		rows = append(rows, model.CanaryRow{Prompt: r.Tokens[:begin], Tokens: r.Tokens[begin:end]})
	}
	if n := len(rows); n > recordedRows {
		for i := range recordedRows {
			rows[i] = rows[i*n/recordedRows] // from different groups
		}
		rows = rows[:recordedRows]
	}
	return &rows
}

// canary makes the canary of version t, which samplers have to reproduce: the
// log-probabilities of random tokens under policy, which holds c. If text is not nil, it
// adds the log-probabilities of text and, for all rows, those under the base without the
// adapter.
func (m *Maker) canary(ctx context.Context, t Target, engine model.Engine, policy model.Trainer, c model.Checkpoint, text canaryText) (*model.Canary, error) {
	canary, err := model.NewCanary(ctx, engine, c.Architecture, policy)
	if err == nil && text != nil && c.Adapter != nil {
		err = m.scoreBase(ctx, &canary, engine, policy, c, *text)
	}
	if err != nil {
		return nil, fmt.Errorf("version %s: %w", t.ID, err)
	}
	return &canary, nil
}

// scoreBase adds text to the canary, scored by the policy. Then it scores all rows by the
// base without the adapter.
func (m *Maker) scoreBase(ctx context.Context, canary *model.Canary, engine model.Engine, policy model.Trainer, c model.Checkpoint, text []model.CanaryRow) error {
	scored, err := m.scoreCanary(ctx, policy, text)
	if err != nil {
		return err
	}
	for i, r := range text {
		r.Logprobs = scored[i]
		canary.Rows = append(canary.Rows, r)
	}
	unchanged, err := c.Adapter.Init(c.Architecture, 0) // a new adapter changes nothing; a model in files gets no weights here
	if err != nil {
		return err
	}
	bare, err := engine.NewTrainer(model.Checkpoint{Architecture: c.Architecture, Adapter: c.Adapter, Weights: unchanged})
	if err != nil {
		return fmt.Errorf("load the base: %w", err)
	}
	defer bare.Close()
	if scored, err = m.scoreCanary(ctx, bare, canary.Rows); err != nil {
		return err
	}
	for i := range canary.Rows {
		canary.Rows[i].Base = scored[i]
	}
	return canary.Check()
}

// scoreCanary returns the log-probabilities of the tokens of each row.
func (m *Maker) scoreCanary(ctx context.Context, policy model.Trainer, text []model.CanaryRow) ([][]float32, error) {
	rows := make([]model.Row, len(text))
	for i, r := range text {
		rows[i] = model.Row{Tokens: append(r.Prompt[:len(r.Prompt):len(r.Prompt)], r.Tokens...), Temperature: 1}
	}
	scored, err := m.score(rows, func(some []model.Row) ([][]float32, error) {
		logprobs, _, err := policy.Score(ctx, some)
		return logprobs, err
	})
	if err != nil {
		return nil, fmt.Errorf("score canaries: %w", err)
	}
	for i, r := range text {
		scored[i] = scored[i][len(r.Prompt)-1:]
	}
	return scored, nil
}
