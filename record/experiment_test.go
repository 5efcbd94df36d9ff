package record_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
)

func TestAnExperimentThatCannotBeginNamesTheField(t *testing.T) {
	t.Parallel()
	valid := record.Experiment{Run: "demo", Policy: "main", Candidate: 7, Control: 5, Share: 0.1}
	require.NoError(t, valid.Check())
	for want, change := range map[string]func(*record.Experiment){
		"run: missing":                    func(e *record.Experiment) { e.Run = "" },
		"policy: missing":                 func(e *record.Experiment) { e.Policy = "" },
		"candidate: -1":                   func(e *record.Experiment) { e.Candidate = -1 },
		"control: -1":                     func(e *record.Experiment) { e.Control = -1 },
		"candidate: 5: it is the control": func(e *record.Experiment) { e.Candidate = 5 },
		"share: 0:":                       func(e *record.Experiment) { e.Share = 0 },
		"share: 1:":                       func(e *record.Experiment) { e.Share = 1 },
		"share: NaN:":                     func(e *record.Experiment) { e.Share = math.NaN() },
	} {
		e := valid
		change(&e)
		require.ErrorContains(t, e.Check(), want)
	}
}
