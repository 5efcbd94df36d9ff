package activities_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
)

// withoutBodies is a store that has lost the bodies of calls.
type withoutBodies struct{ *store.Store }

var errNoBodies = errors.New("bodies were asked for")

func (withoutBodies) Exchanges(context.Context, record.Address) ([]record.Exchange, error) {
	return nil, errNoBodies
}

func TestCreditWithoutSignalsReadsNoBodies(t *testing.T) {
	t.Parallel()
	groups := []entry{{says: []string{"a: go", "a: on"}, reward: 1}, {says: []string{"a: go"}, reward: 0}}
	for name, c := range map[string]spec.Credit{"grpo": {}, "signals": {Signals: map[string]float64{spec.SignalParseFailure: -1}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t).credited(c)
			w.coordinator.Attempts = withoutBodies{w.store}
			_, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, w.record(1, groups))
			if name == "grpo" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, errNoBodies.Error())
			}
		})
	}
}
