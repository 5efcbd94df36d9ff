package workers_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/workers"
)

// Nothing is started with names and addresses that can't be meant.
func TestFlagsThatCanNotBeMeantAreRefused(t *testing.T) {
	records := []string{"--store", "s.db", "--blobs", "b"}
	for want, args := range map[string][]string{
		`--queue: queue "": no name`:                                              {"cpu", "--queue", "a,,b"},
		`--queue: queue "training": Fulgurite's own workers poll this queue`:      {"cpu", "--queue", "training"},
		`--gateway "gateway:8000": give an address with its scheme`:               {"cpu", "--gateway", "gateway:8000"},
		`--sampler "127.0.0.1:8000": give an address with its scheme`:             {"cpu", "--sampler", "127.0.0.1:8000"},
		`--agent-address "http://here": give a host`:                              {"cpu", "--agent-address", "http://here"},
		"--engine names no engine":                                                {"gpu", "--engine", ""},
		`--advertise "sampler:8000": give an address with its scheme`:             {"sampler", "--advertise", "sampler:8000"},
		`--advertise "http://0.0.0.0:8000": others can't connect to this address`: {"sampler", "--advertise", "http://0.0.0.0:8000"},
		`--advertise "https://": give an address with its scheme`:                 {"gateway", "--advertise", "https://"},
		`--embeddings "embed": give an address with its scheme`:                   {"gateway", "--embeddings", "embed"},
		`--gateway "http://a?b=c": paths are added to this address`:               {"cpu", "--gateway", "http://a?b=c"},
		`--sampler "http://a#b": paths are added to this address`:                 {"cpu", "--sampler", "http://a#b"},
		`--advertise "http://u:xxxxx@a": everyone is told this address`:           {"sampler", "--advertise", "http://u:hush@a"},
		"--concurrency -1: give 0 or more":                                        {"cpu", "--concurrency=-1"},
		"--resident 0: give 1 or more":                                            {"sampler", "--resident=0"},
		"--embeddings-model is without effect":                                    {"gateway", "--embeddings-model", "m"},
	} {
		_, err := workers.Parse(append(args, records...), io.Discard)
		require.ErrorContains(t, err, want)
		var log bytes.Buffer
		require.Equal(t, workers.ExitUsage, workers.Run(t.Context(), append(args, records...), &log))
		require.Contains(t, log.String(), want)
	}
	t.Setenv("FULGURITE_QUEUES", " ")
	_, err := workers.Parse(append([]string{"cpu"}, records...), io.Discard)
	require.ErrorContains(t, err, `queue "": no name`)
	t.Setenv("FULGURITE_QUEUES", "a, b,a")
	_, err = workers.Parse(append([]string{"cpu"}, records...), io.Discard)
	require.NoError(t, err, "white space between names is nobody's queue")
}
