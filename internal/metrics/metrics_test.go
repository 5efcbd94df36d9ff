package metrics_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/metrics"
)

// shown returns what Prometheus reads.
func shown(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	all, err := m.Registry().Gather()
	require.NoError(t, err)
	var text strings.Builder
	for _, family := range all {
		_, err := expfmt.MetricFamilyToText(&text, family)
		require.NoError(t, err)
	}
	return text.String()
}

// use does something of everything.
func use(m *metrics.Metrics) {
	m.Rollout("train", "completed")
	m.Reward("train", 0.5)
	m.Sampling()()
	m.Sampled("chat", time.Second, 7, 3)
	m.Replayed(3)
	m.Refused("call_limit", 1)
	m.Step("main", time.Minute)
	m.TrainedTokens(11)
	m.Mismatch("main", 0.25)
	m.Request()(7, 3)
	m.Request()(7, -1)
	m.Wrote(time.Millisecond, nil)
	m.Wrote(time.Millisecond, errors.New("away"))
	m.BlobRead(5)
	m.BlobWritten(6)
	for range 2 {
		m.Lease("gateway", func() bool { return true })
	}
}

func TestWhatHappenedIsShown(t *testing.T) {
	t.Parallel()
	m := metrics.New("1.2.3")
	use(m)
	text := shown(t, m)
	for _, line := range []string{
		`fulgurite_build_info{version="1.2.3"} 1`,
		`fulgurite_rollouts_total{kind="train",outcome="completed"} 1`,
		`fulgurite_reward_sum{kind="train"} 0.5`,
		`fulgurite_calls_in_flight 0`,
		`fulgurite_call_seconds_count{api="chat"} 1`,
		`fulgurite_tokens_total{kind="prompt"} 7`,
		`fulgurite_tokens_total{kind="sampled"} 3`,
		`fulgurite_tokens_total{kind="replayed"} 3`,
		`fulgurite_tokens_total{kind="trained"} 11`,
		`fulgurite_replayed_calls_total 1`,
		`fulgurite_refused_calls_total{code="call_limit"} 1`,
		`fulgurite_train_step_seconds_sum{policy="main"} 60`,
		`fulgurite_mismatch{policy="main"} 0.25`,
		`fulgurite_sampler_seconds_count 1`,
		`fulgurite_sampler_in_flight 0`,
		`fulgurite_sampler_tokens_total{kind="sampled"} 3`,
		`fulgurite_store_write_seconds_count 1`,
		`fulgurite_store_write_failures_total 1`,
		`fulgurite_blob_bytes_total{direction="read"} 5`,
		`fulgurite_blob_bytes_total{direction="written"} 6`,
		`fulgurite_lease_held{role="gateway"} 1`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	require.Contains(t, text, "\ngo_goroutines ")
}

func TestNoMetricsCountNothing(t *testing.T) {
	t.Parallel()
	require.NotPanics(t, func() { use(nil) })
}

func TestTheListOfMetricsIsWhole(t *testing.T) {
	t.Parallel()
	m := metrics.New("1.2.3")
	use(m)
	page, err := os.ReadFile("../../docs/monitoring.md")
	require.NoError(t, err)
	ours, _, _ := strings.Cut(string(page), "## Other metrics")
	names := func(pattern, text string) (all []string) {
		for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, found[1])
		}
		slices.Sort(all)
		return all
	}
	require.Equal(t, names(`(?m)^# TYPE (fulgurite_\w+)`, shown(t, m)), names("(?m)^\\| `(fulgurite_\\w+)[`{]", ours))
}
