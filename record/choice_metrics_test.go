package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
)

// The numbers of a choice are what docs/metrics.md says; a reserve counts in none.
func TestTheMetricsOfAChoiceCountItsDraws(t *testing.T) {
	t.Parallel()
	draws := func(reasons ...record.Reason) (all []record.Draw) {
		for _, why := range reasons {
			all = append(all, record.Draw{Why: why})
		}
		return all
	}
	band := record.Choice{
		Places: 8, Left: 40, Known: 12, InBand: 5,
		Draws: draws(record.ReasonBand, record.ReasonBand, record.ReasonBand, record.ReasonExplored, record.ReasonNew, record.ReasonNew, record.ReasonWidened, record.ReasonBand,
			record.ReasonExplored, record.ReasonNew), // two reserves
	}
	require.Equal(t, map[string]float64{
		"curriculum/left": 40, "curriculum/known": 12, "curriculum/in_band": 5,
		"curriculum/band": 4.0 / 8, "curriculum/explored": 1.0 / 8, "curriculum/new": 2.0 / 8, "curriculum/widened": 1.0 / 8,
	}, band.Metrics())
	easy := record.Choice{Places: 2, Left: 40, Open: 7, Draws: draws(record.ReasonEasy, record.ReasonEasy)}
	require.Equal(t, map[string]float64{"curriculum/left": 40, "curriculum/open": 7}, easy.Metrics())
	stage := record.Choice{Places: 2, Left: 40, Stage: 1, Title: "two operands", Draws: draws(record.ReasonStage, record.ReasonStage)}
	require.Equal(t, map[string]float64{"curriculum/left": 40, "curriculum/stage": 2}, stage.Metrics())
}
