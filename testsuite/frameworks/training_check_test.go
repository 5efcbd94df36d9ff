package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALessonHasToShowThatSomethingWasLearned(t *testing.T) {
	t.Parallel()
	good := trainingCheck{steps: 1, calls: 8, trained: 100, better: 0.1, worse: -0.1, rewarded: true}
	require.NoError(t, good.check())
	for want, spoil := range map[string]func(*trainingCheck){
		"no step is on record":                             func(l *trainingCheck) { l.steps = 0 },
		"no token was trained":                             func(l *trainingCheck) { l.trained = 0 },
		"the agent failed in 1 attempts, such as a: no":    func(l *trainingCheck) { l.failed = []string{"a: no"} },
		"1 attempts made no call, such as a/train-1/0/0/1": func(l *trainingCheck) { l.silent = []string{"a/train-1/0/0/1"} },
		"the rewards of the first step don't differ":       func(l *trainingCheck) { l.rewarded = false },
		"of rewarded tokens by -0.0100":                    func(l *trainingCheck) { l.better = -0.01 },
		"of the others by +0.2000":                         func(l *trainingCheck) { l.worse = 0.2 },
	} {
		bad := good
		spoil(&bad)
		require.ErrorContains(t, bad.check(), want)
	}
}
