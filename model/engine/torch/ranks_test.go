package torch_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// Sums in a different order differ by at most these parts of a vector's length.
const (
	ranksMean    = 1e-5
	ranksWeights = 1e-4
)

// spread returns an engine with the real program as several ranks on the CPU.
func spread(t *testing.T, ranks int) *torch.Engine {
	t.Helper()
	return engine(t, torch.Options{Ranks: strconv.Itoa(ranks), Tokens: 20})
}

// spreadModels returns a whole model with its own output layer, one whose output layer is
// its embedding, and adapters, of which two train rows of tokens.
func spreadModels() map[string]model.Checkpoint {
	tied := small()
	tied.Tied = true
	return map[string]model.Checkpoint{
		"tokens": adapter(start(tied), tokens(), 4), "untied tokens": adapter(start(small()), tokens(), 4),
		"whole": start(small()), "tied": start(tied),
		"adapter": adapter(start(small()), model.LoRA{Rank: 3, Alpha: 6, Targets: model.LoRATargets()}, 3),
	}
}

// A run continues with another number of ranks: one rank loads what several have saved,
// and the other way round.
func agreesWithOne(t *testing.T, e *torch.Engine) {
	t.Helper()
	one := shared(t)
	for name, c := range spreadModels() {
		t.Logf("%s on %s", name, e.Fingerprint())
		several, alone := trainer(t, e, c), trainer(t, one, c)
		for range 2 {
			got, gotEntropies, err := several.Score(t.Context(), rows())
			require.NoError(t, err)
			want, wantEntropies, err := alone.Score(t.Context(), rows())
			require.NoError(t, err)
			for row := range rows() {
				require.InDeltaSlice(t, want[row], got[row], 1e-5, "row %d", row)
				require.InDeltaSlice(t, wantEntropies[row], gotEntropies[row], 1e-5, "row %d", row)
			}
			norm, err := several.Update(t.Context(), rows(), slopes, adamW())
			require.NoError(t, err)
			oneNorm, err := alone.Update(t.Context(), rows(), slopes, adamW())
			require.NoError(t, err)
			require.InEpsilon(t, oneNorm, norm, 1e-5)
		}
		want, got := alone.Checkpoint(), several.Checkpoint()
		require.Equal(t, want.Updates, got.Updates)
		closeTo(t, want.Mean, got.Mean, ranksMean)
		closeTo(t, want.Weights, got.Weights, ranksWeights)

		loaded, back := trainer(t, one, got), trainer(t, e, want)
		require.Empty(t, cmp.Diff(got, loaded.Checkpoint(), ignoreBase()))
		require.Empty(t, cmp.Diff(want, back.Checkpoint(), ignoreBase()))
	}
}

// doesAllElseAsOne tests a critic, moments in 8 bits, a model that only scores, and
// samples.
func doesAllElseAsOne(t *testing.T, e *torch.Engine) {
	t.Helper()
	one, c := shared(t), start(small())
	of, err := model.CriticOf(c)
	require.NoError(t, err)
	var after []model.Weights
	for _, e := range []*torch.Engine{e, one} {
		critic, err := e.NewCritic(of)
		require.NoError(t, err)
		defer critic.Close()
		_, err = critic.Update(t.Context(), rows(), func(row int, values, gradient []float32) {
			slopes(row, values, nil, gradient, make([]float32, len(values)))
		}, model.AdamW{LearningRate: 1e-3, Epsilon: 1e-8})
		require.NoError(t, err)
		values, err := critic.Values(t.Context(), rows())
		require.NoError(t, err)
		require.Len(t, values, len(rows()))
		after = append(after, critic.Checkpoint().Weights)
	}
	closeTo(t, after[1][:len(after[1])-2], after[0][:len(after[0])-2], ranksWeights)

	eight := start(wide())
	eight.Moments = model.MomentsInt8
	alone, several := trainer(t, one, eight), trainer(t, e, eight)
	for _, tr := range []model.Trainer{alone, several} {
		_, err := tr.Update(t.Context(), rows(), slopes, adamW())
		require.NoError(t, err)
	}
	for from, to := range map[model.Trainer]*torch.Engine{alone: e, several: one} { // rows keep their scales, whichever rank holds them
		require.Empty(t, cmp.Diff(from.Checkpoint(), trainer(t, to, from.Checkpoint()).Checkpoint()))
	}

	for name, c := range spreadModels() {
		want, _, err := trainer(t, e, c).Score(t.Context(), rows())
		require.NoError(t, err)
		scorer, err := e.NewRowScorer(c)
		require.NoError(t, err)
		defer scorer.Close()
		got, _, err := scorer.Score(t.Context(), rows())
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got), name)
		r := model.DecodeRequest{Prompt: []int32{1, 5, 2}, MaxTokens: 8, Temperature: 1, Seed: 7}
		sampled, err := decoder(t, e, c).Decode(t.Context(), r)
		require.NoError(t, err)
		same, err := decoder(t, one, c).Decode(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, same.Tokens, sampled.Tokens, name)
	}
}

func ignoreBase() cmp.Option {
	return cmp.FilterPath(func(p cmp.Path) bool { return strings.HasSuffix(p.String(), "Adapter") }, cmp.Ignore())
}

func TestFourRanksAgreeWithOne(t *testing.T) {
	t.Parallel()
	e := spread(t, 4)
	require.Contains(t, e.Fingerprint(), " ranks-4")
	agreesWithOne(t, e)
}

func TestTwoRanksAgreeWithOneAndAnyMayDie(t *testing.T) {
	t.Parallel()
	e := spread(t, 2)
	agreesWithOne(t, e)
	doesAllElseAsOne(t, e)

	c := spreadModels()["whole"]
	whole := trainer(t, e, c)
	_, err := whole.Update(t.Context(), rows(), slopes, adamW())
	require.NoError(t, err)
	want := whole.Checkpoint()

	tr := trainer(t, e, c)
	for rank := range 2 {
		dir := e.Dir()
		err = interrupted(t, e, tr, rank, syscall.SIGKILL)
		require.ErrorIs(t, err, model.ErrEngineLost)
		require.ErrorContains(t, err, fmt.Sprintf("rank %d of 2: it ended with signal: killed", rank))
		require.NoDirExists(t, dir)
		tr = trainer(t, e, c)
		_, err = tr.Update(t.Context(), rows(), slopes, adamW())
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want.Weights, tr.Checkpoint().Weights))
	}

	// One rank can't continue while the other waits for it.
	e.SetGrace(time.Millisecond)
	err = torch.Damage(tr, rows())
	require.ErrorIs(t, err, model.ErrEngineLost)
	require.ErrorContains(t, err, "rank 1, for which rank 0 waited: forward: ")
	_, _, err = tr.Score(t.Context(), rows())
	require.ErrorIs(t, err, model.ErrEngineLost)
	last := trainer(t, e, c)

	err = interrupted(t, e, last, 1, syscall.SIGSTOP)
	require.ErrorIs(t, err, model.ErrEngineLost)
	require.ErrorContains(t, err, "no sign of life for 1s")
	for rank := range 2 {
		require.ErrorIs(t, syscall.Kill(e.RankPID(rank), 0), syscall.ESRCH)
	}
}
