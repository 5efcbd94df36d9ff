// Package metrics counts and times what one process does, for Prometheus. The store has
// what runs did. Metrics show how the processes work: how fast, how loaded, what fails.
//
// All names begin with fulgurite_. [New] makes all but that of a lease. Labels have few values:
// kinds, outcomes and names from this program, never a run's, a task's or a user's text.
//
// A nil *Metrics counts nothing, so that parts may be used without one.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are the metrics of one process. It is safe for concurrent use. Make one with New.
type Metrics struct {
	registry *prometheus.Registry

	rollouts      *prometheus.CounterVec
	rewards       *prometheus.HistogramVec
	callSeconds   *prometheus.HistogramVec
	callsInFlight prometheus.Gauge
	replayed      prometheus.Counter
	refused       *prometheus.CounterVec
	conversations prometheus.Counter
	servedCalls   *prometheus.CounterVec
	tokens        *prometheus.CounterVec
	stepSeconds   *prometheus.HistogramVec
	mismatch      *prometheus.GaugeVec
	samplerTime   prometheus.Histogram
	samplerBusy   prometheus.Gauge
	samplerTokens *prometheus.CounterVec
	writeSeconds  prometheus.Histogram
	failedWrites  prometheus.Counter
	blobBytes     *prometheus.CounterVec
}

// seconds are the bounds of how long calls take.
var seconds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}

// The kinds of tokens.
const (
	promptTokens   = "prompt"
	sampledTokens  = "sampled"
	replayedTokens = "replayed"
	trainedTokens  = "trained"
)

// The outcomes of served calls that were to be recorded.
const (
	recordedCall   = "recorded"
	unrecordedCall = "unrecorded"
)

// New returns the metrics of a process of this version of the program.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		rollouts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fulgurite_rollouts_total", Help: "Attempts at rollouts that this process ended, by the kind of the rollout and the outcome. After infra_fault there usually is another attempt.",
		}, []string{"kind", "outcome"}),
		rewards: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fulgurite_reward", Help: "Rewards of attempts when this process recorded them, by the kind of the rollout.",
			Buckets: []float64{-1, -0.5, -0.1, 0, 0.1, 0.25, 0.5, 0.75, 0.9, 1, 2, 5, 10, 100},
		}, []string{"kind"}),
		callSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fulgurite_call_seconds", Help: "Seconds that model calls of attempts took to be sampled, by API, for those on record.",
			Buckets: seconds,
		}, []string{"api"}),
		callsInFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fulgurite_calls_in_flight", Help: "Model calls of attempts that are being sampled.",
		}),
		replayed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fulgurite_replayed_calls_total", Help: "Model calls that were answered from the record of an earlier attempt.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fulgurite_refused_calls_total", Help: "Model calls and rewards of attempts that were refused, by the code of the reason.",
		}, []string{"code"}),
		conversations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fulgurite_conversations_total", Help: "Conversations with served versions that this process began to record.",
		}),
		servedCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fulgurite_served_calls_total", Help: "Model calls of conversations that were to be recorded, by the outcome: recorded, or unrecorded for those that were served although they could not be recorded.",
		}, []string{"outcome"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fulgurite_tokens_total", Help: "Tokens: of the prompts of sampled calls, of their replies (sampled), of replayed replies, and those in the loss of steps (trained).",
		}, []string{"kind"}),
		stepSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fulgurite_train_step_seconds", Help: "Seconds that updates of a step took in this process, by policy; what an earlier process did of a step is not in it.",
			Buckets: []float64{0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600},
		}, []string{"policy"}),
		mismatch: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fulgurite_mismatch", Help: "The metric train/mismatch of the last step of this process, in nats, by policy: how far log-probabilities of what trains are from those of what sampled.",
		}, []string{"policy"}),
		samplerTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fulgurite_sampler_seconds", Help: "Seconds that requests took that this process samples, or sends to servers of a spec, with their wait for others, for those that were answered.",
			Buckets: seconds,
		}),
		samplerBusy: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fulgurite_sampler_in_flight", Help: "Requests that this process samples, or has sent to servers of a spec.",
		}),
		samplerTokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fulgurite_sampler_tokens_total", Help: "Tokens of the prompts and replies of these requests, for those that were answered.",
		}, []string{"kind"}),
		writeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fulgurite_store_write_seconds", Help: "Seconds that transactions of the store took to be committed, with the wait for others.",
			Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}),
		failedWrites: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fulgurite_store_write_failures_total", Help: "Transactions of the store that are not known to be committed: failed ones, refused ones, and those whose caller gave up waiting.",
		}),
		blobBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fulgurite_blob_bytes_total", Help: "Bytes of blobs that this process has read, to verify them too, and of those that it has written: weights, batches and snapshots of tasks.",
		}, []string{"direction"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fulgurite_build_info", Help: "1, with the version of the program.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(
		m.rollouts, m.rewards, m.callSeconds, m.callsInFlight, m.replayed, m.refused, m.conversations, m.servedCalls, m.tokens, m.stepSeconds, m.mismatch, m.samplerTime, m.samplerBusy, m.samplerTokens, m.writeSeconds, m.failedWrites, m.blobBytes,
		build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	// A series that begins with its first event hides that event from rate().
	for _, outcome := range []string{recordedCall, unrecordedCall} {
		m.servedCalls.WithLabelValues(outcome)
	}
	for _, kind := range []string{promptTokens, sampledTokens, replayedTokens, trainedTokens} {
		m.tokens.WithLabelValues(kind)
	}
	for _, kind := range []string{promptTokens, sampledTokens} {
		m.samplerTokens.WithLabelValues(kind)
	}
	for _, direction := range []string{"read", "written"} {
		m.blobBytes.WithLabelValues(direction)
	}
	return m
}

// Registry returns the registry that has the metrics, to which a process may add others.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Rollout counts an attempt that ended with this outcome.
func (m *Metrics) Rollout(kind, outcome string) {
	if m != nil {
		m.rollouts.WithLabelValues(kind, outcome).Inc()
	}
}

// Reward counts the reward of an attempt.
func (m *Metrics) Reward(kind string, reward float64) {
	if m != nil {
		m.rewards.WithLabelValues(kind).Observe(reward)
	}
}

// Sampling counts a call as in flight until done is called.
func (m *Metrics) Sampling() (done func()) {
	if m == nil {
		return func() {}
	}
	m.callsInFlight.Inc()
	return m.callsInFlight.Dec
}

// Sampled counts a sampled call on record with the numbers of its tokens.
func (m *Metrics) Sampled(api string, took time.Duration, prompt, completion int) {
	if m != nil {
		m.callSeconds.WithLabelValues(api).Observe(took.Seconds())
		m.tokens.WithLabelValues(promptTokens).Add(float64(prompt))
		m.tokens.WithLabelValues(sampledTokens).Add(float64(completion))
	}
}

// Replayed counts a call that was answered with the tokens of an earlier attempt.
func (m *Metrics) Replayed(completion int) {
	if m != nil {
		m.replayed.Inc()
		m.tokens.WithLabelValues(replayedTokens).Add(float64(completion))
	}
}

// Refused counts refused calls or rewards.
func (m *Metrics) Refused(code string, count int) {
	if m != nil {
		m.refused.WithLabelValues(code).Add(float64(count))
	}
}

// Conversation counts a conversation that began.
func (m *Metrics) Conversation() {
	if m != nil {
		m.conversations.Inc()
	}
}

// Served counts a call of a conversation that was to be recorded, and whether it was.
func (m *Metrics) Served(recorded bool) {
	if m == nil {
		return
	}
	outcome := unrecordedCall
	if recorded {
		outcome = recordedCall
	}
	m.servedCalls.WithLabelValues(outcome).Inc()
}

// Step counts a step of a policy that this process made, or finished.
func (m *Metrics) Step(policy string, took time.Duration) {
	if m != nil {
		m.stepSeconds.WithLabelValues(policy).Observe(took.Seconds())
	}
}

// TrainedTokens counts the tokens in the loss of a step.
func (m *Metrics) TrainedTokens(count int) {
	if m != nil {
		m.tokens.WithLabelValues(trainedTokens).Add(float64(count))
	}
}

// Mismatch sets the mismatch of a policy's last step, in nats.
func (m *Metrics) Mismatch(policy string, nats float64) {
	if m != nil {
		m.mismatch.WithLabelValues(policy).Set(nats)
	}
}

// Request counts a request as being sampled until done is called. done gets the number of
// the prompt's tokens, and of the reply's, which is below 0 if there is no reply.
func (m *Metrics) Request() (done func(prompt, completion int)) {
	if m == nil {
		return func(int, int) {}
	}
	began := time.Now()
	m.samplerBusy.Inc()
	return func(prompt, completion int) {
		m.samplerBusy.Dec()
		if completion < 0 {
			return
		}
		m.samplerTime.Observe(time.Since(began).Seconds())
		m.samplerTokens.WithLabelValues(promptTokens).Add(float64(prompt))
		m.samplerTokens.WithLabelValues(sampledTokens).Add(float64(completion))
	}
}

// Wrote times a transaction of the store.
func (m *Metrics) Wrote(took time.Duration, err error) {
	switch {
	case m == nil:
	case err != nil:
		m.failedWrites.Inc()
	default:
		m.writeSeconds.Observe(took.Seconds())
	}
}

// BlobRead counts bytes that were read from a blob.
func (m *Metrics) BlobRead(bytes int64) {
	if m != nil {
		m.blobBytes.WithLabelValues("read").Add(float64(bytes))
	}
}

// BlobWritten counts the bytes of a new blob.
func (m *Metrics) BlobWritten(bytes int64) {
	if m != nil {
		m.blobBytes.WithLabelValues("written").Add(float64(bytes))
	}
}

// Lease shows whether the process holds its lease of a role. The first call for a role
// counts.
func (m *Metrics) Lease(role string, valid func() bool) {
	if m == nil {
		return
	}
	_ = m.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fulgurite_lease_held", Help: "1 while this process holds the lease of its role, else 0.", ConstLabels: prometheus.Labels{"role": role},
	}, func() float64 {
		if valid() {
			return 1
		}
		return 0
	})) // the error says that the role has been registered
}
