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
	"github.com/fulgurite/fulgurite/trace"
)

// Attempts reads what attempts recorded.
type Attempts interface {
	Trajectories(ctx context.Context, addresses []trace.Address) ([]trace.Trajectory, error)
}

// servers has the server that sampled each call of a batch, by trajectory and Seq.
type servers []map[int32]string

// serversOf reads the servers from the record. It returns nil if the record does not name
// them.
func (m *Maker) serversOf(ctx context.Context, b model.Batch) (servers, error) {
	if m.Attempts == nil {
		return nil, nil
	}
	addresses := make([]trace.Address, len(b.Trajectories))
	for i, t := range b.Trajectories {
		var err error
		if addresses[i], err = trace.ParseAddress(t.Attempt); err != nil {
			return nil, Invalid(fmt.Errorf("trajectory %d: %w", i, err))
		}
	}
	all, err := m.Attempts.Trajectories(ctx, addresses)
	if errors.Is(err, trace.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which servers sampled: %w", err)
	}
	out := make(servers, len(all))
	for i, t := range all {
		out[i] = map[int32]string{}
		for _, c := range t.History {
			out[i][int32(c.Seq)] = c.Server
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
