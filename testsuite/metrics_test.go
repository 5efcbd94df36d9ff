package testsuite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// scrape returns the series of a process by name and labels, as text.
func scrape(ctx context.Context, t *testing.T, url string) map[string]float64 {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	out := map[string]float64{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		at := strings.LastIndex(lines.Text(), " ")
		out[lines.Text()[:at]], err = strconv.ParseFloat(lines.Text()[at+1:], 64)
		require.NoError(t, err, lines.Text())
	}
	require.NoError(t, lines.Err())
	return out
}

// of returns the sum of the series of a name whose labels contain all texts.
func of(series map[string]float64, name string, labels ...string) (sum float64) {
series:
	for key, value := range series {
		found, rest, _ := strings.Cut(key, "{")
		if found != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue series
			}
		}
		sum += value
	}
	return sum
}

func TestMetricsAgreeWithTheReport(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var seen sync.Map
	again := func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		answer, err := calculate(ctx, task, env)
		if _, repeated := seen.LoadOrStore(env.Rollout, true); !repeated && env.Rollout.Task == 1 {
			return "", fmt.Errorf("a tool's server restarts: %w", agent.ErrRetry)
		}
		return answer, err
	}
	port := 0
	st, err := stack.Start(ctx, stack.Options{Dir: t.TempDir(), Agents: agent.Registry{"calculator": again}, MetricsPort: &port, Log: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	result, err := train(ctx, st, "run", small(2))
	require.NoError(t, err)
	account, err := report.Of(ctx, st.Store, st.Blobs, "run", "main")
	require.NoError(t, err)
	series := scrape(ctx, t, st.MetricsURL())

	require.NotZero(t, account.Attempts.InfraFault, "some attempts were repeated")
	require.NotZero(t, account.Attempts.Calls.Replayed)
	for kind, a := range account.ByKind {
		label := fmt.Sprintf(`kind="%s"`, kind)
		require.EqualValues(t, a.Completed, of(series, "fulgurite_rollouts_total", label, `outcome="completed"`), kind)
		require.EqualValues(t, a.AgentFailed, of(series, "fulgurite_rollouts_total", label, `outcome="agent_failed"`), kind)
		require.EqualValues(t, a.InfraFault, of(series, "fulgurite_rollouts_total", label, `outcome="infra_fault"`), kind)
		require.EqualValues(t, a.Completed+a.AgentFailed, of(series, "fulgurite_reward_count", label), kind)
	}
	calls := account.Attempts.Calls
	require.EqualValues(t, calls.Sampled, of(series, "fulgurite_call_seconds_count", `api="chat"`))
	require.GreaterOrEqual(t, int(of(series, "fulgurite_sampler_seconds_count")), calls.Sampled, "a call of an attempt that was lost is sampled, and not recorded")
	require.EqualValues(t, calls.Replayed, of(series, "fulgurite_replayed_calls_total"))
	require.EqualValues(t, calls.Tokens, of(series, "fulgurite_tokens_total", `"sampled"`)+of(series, "fulgurite_tokens_total", `"replayed"`))
	require.EqualValues(t, calls.TokensSaved, of(series, "fulgurite_tokens_total", `"replayed"`))
	require.GreaterOrEqual(t, of(series, "fulgurite_sampler_tokens_total", `"prompt"`), of(series, "fulgurite_tokens_total", `"prompt"`))
	require.Positive(t, of(series, "fulgurite_tokens_total", `"trained"`))
	require.EqualValues(t, result.Steps, of(series, "fulgurite_train_step_seconds_count", `policy="main"`))
	require.Zero(t, of(series, "fulgurite_calls_in_flight"))
	require.Zero(t, of(series, "fulgurite_sampler_in_flight"))
	require.Positive(t, of(series, "temporal_activity_schedule_to_start_latency_seconds_count", `activity_type="RunAgent"`), "the wait in queues")

	data, err := os.ReadFile("../docs/grafana.json")
	require.NoError(t, err)
	require.True(t, json.Valid(data))
	named := regexp.MustCompile(`\b(fulgurite|temporal|process|go)_[a-z_]+`).FindAllString(string(data), -1)
	require.Greater(t, len(named), 15)
	shown := map[string]bool{"fulgurite_lease_held": true, "fulgurite_refused_calls_total": true, "temporal_activity_execution_failed_total": true} // not in this run
	for key := range series {
		name, _, _ := strings.Cut(key, "{")
		shown[name] = true
	}
	for _, name := range named {
		require.True(t, shown[name], "docs/grafana.json shows %s, which this run has not", name)
	}
}
