package main

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

func TestTheRedactorTakesSecretsOut(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	in := "{\"text\":\"(3/1) " + secret(3, 1) + ", please\"}\n{\"text\":\"zebra-3-1\"}\n"
	require.NoError(t, redact(strings.NewReader(in), &out))
	require.Equal(t, "{\"text\":\"(3/1) [number], please\"}\n{\"text\":\"zebra-3-1\"}\n", out.String())
	require.ErrorContains(t, redact(strings.NewReader("none\n"), &out), "read text")
}

func TestTheGraderGivesMoreTheLaterItIsAsked(t *testing.T) {
	t.Parallel()
	since := strconv.FormatInt(time.Now().Add(-time.Minute).UnixNano(), 10)
	var first, second bytes.Buffer
	require.NoError(t, grade([]string{since}, &first))
	require.NoError(t, grade([]string{since}, &second))
	one, err := strconv.ParseFloat(strings.TrimSpace(first.String()), 64)
	require.NoError(t, err)
	two, err := strconv.ParseFloat(strings.TrimSpace(second.String()), 64)
	require.NoError(t, err)
	require.Greater(t, one, 60.0)
	require.Greater(t, two, one)
	require.Error(t, grade(nil, &first))
	require.Error(t, grade([]string{"noon"}, &first))
}

func TestARunWithExperimentsIsValid(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-scenarios", "experiment"}, t.Output())
	require.NoError(t, err)
	s, err := trafficSpec(o.scenarios[0], o)
	require.NoError(t, err)
	require.NoError(t, s.Validate())
	require.NotNil(t, s.Traffic.Redactor)
	require.NotNil(t, s.Traffic.Train.Experiment)
}

func TestTheUserWhoIsForgottenEndsBeforeThat(t *testing.T) {
	t.Parallel()
	c := &clients{all: servingClients(), experiment: true}
	random := rand.New(rand.NewPCG(1, 2))
	own, judged, secrets, liked := 0, 0, 0, map[float64]int{}
	begun := func() *dialog {
		d := c.begin(random)
		r := checker.ServedRequest{Client: d.client.name, Dialog: d.number, User: d.user, Consents: d.consents, Reply: checker.ServedReply{ID: "r", Version: d.number % 2}}
		c.plant(d, &r, random)
		if d.user == forgottenUser {
			own++
			require.True(t, strings.HasPrefix(r.Planted, forgottenWord))
			require.True(t, d.consents)
			require.False(t, r.Redacted, "steps learn from the user")
		}
		if r.Redacted {
			secrets++
			require.Empty(t, secretPattern.ReplaceAllString(r.Planted, ""))
		}
		all := c.judgments(d, r, random)
		for _, g := range all {
			liked[g.Reward]++
			require.Equal(t, d.number%2 == 1, g.Reward > 0, "people like versions with odd numbers")
			if g.User == forgottenUser && d.user != forgottenUser {
				judged++
				require.Len(t, all, 1, "nobody else judges the reply")
				c.end()
			}
		}
		return d
	}
	for range 500 {
		if begun().user == forgottenUser {
			c.end()
		}
	}
	require.Equal(t, maxForgotten, own)
	require.Positive(t, judged)
	require.Positive(t, secrets)
	require.Len(t, liked, 4)

	require.True(t, c.speak(false))
	c.silence()
	require.False(t, c.silent(), "what has begun goes on")
	c.end()
	require.True(t, c.silent())
	for range 500 {
		require.NotEqual(t, forgottenUser, begun().user)
	}
	require.True(t, c.silent())
}
