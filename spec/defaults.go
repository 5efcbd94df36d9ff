package spec

import "cmp"

// Defaults of absent keys; docs/spec.md lists all of them.
const (
	defaultQueue       = "rollout-cpu"
	defaultOutputBytes = 1 << 20
	defaultMemoryBytes = 2 << 30
)

// WithDefaults fills in every field that is zero and has a default. It leaves a field
// empty if the field has no effect together with the others, so that Validate can tell
// whether the user wrote it. Calling it again on the result changes nothing.
func (s Spec) WithDefaults() Spec {
	s = s.expanded()
	s.Seed = cmp.Or(s.Seed, 1)
	if s.Sampling.Server != nil && s.Sampling.Server.Type == ServerOpenAI {
		s.Model.Codec = cmp.Or(s.Model.Codec, CodecMessages)
	}
	s.Model = s.Model.withDefaults()
	s.Agent = s.Agent.withDefaults()
	if s.Grader.Type == GraderCommand || s.Grader.Type == GraderSQL {
		s.Grader.Seconds = cmp.Or(s.Grader.Seconds, 10)
	}
	if s.Grader.Type == GraderTasks {
		s.Grader.Seconds = cmp.Or(s.Grader.Seconds, 60)
	}
	s.Grader.Limit = cmp.Or(s.Grader.Limit, 1e6)
	if s.Sampling.Temperature == nil {
		one := 1.0
		s.Sampling.Temperature = &one
	}
	s.Sampling.MaxTokens = cmp.Or(s.Sampling.MaxTokens, 24)
	s.Sampling.History = cmp.Or(s.Sampling.History, "append")
	if s.Sampling.Server == nil && s.Model.Engine == EngineTorch {
		s.Sampling.Engine = cmp.Or(s.Sampling.Engine, EngineTorch)
	}
	if s.Sampling.Server != nil {
		server := *s.Sampling.Server // the caller's copy does not change
		server.Versions = cmp.Or(server.Versions, server.defaultVersions())
		s.Sampling.Server = &server
	}
	s.Training = s.Training.withDefaults()
	s.Credit = s.Credit.withDefaults()
	s.Loss = s.Loss.withDefaults(s.Training.Lag, cmp.Or(s.Agent.Limits.Tokens, s.Agent.Limits.Calls*s.Sampling.MaxTokens))
	if s.Critic != nil || s.Credit.UsesCritic() {
		critic := *cmp.Or(s.Critic, &Critic{}) // the caller's copy does not change
		critic = critic.withDefaults()
		s.Critic = &critic
	}
	if s.Tasks.Gate != "" && s.Evaluation.Only == "" {
		s.Evaluation.Every = cmp.Or(s.Evaluation.Every, 5)
		s.Promotion.Significance = cmp.Or(s.Promotion.Significance, 0.1)
		if s.Promotion.Approval {
			s.Promotion.ApprovalHours = cmp.Or(s.Promotion.ApprovalHours, 24)
		}
	}
	if s.Tasks.Gate != "" || s.Tasks.Test != "" || s.Evaluation.Only != "" {
		s.Evaluation.Samples = cmp.Or(s.Evaluation.Samples, 1)
	}
	return s
}

func (m Model) withDefaults() Model {
	m.Engine = cmp.Or(m.Engine, EngineNative)
	m.Base = cmp.Or(m.Base, BaseTiny)
	if m.Base == BaseTiny {
		m.Context = cmp.Or(m.Context, 64)
	}
	m.Codec = cmp.Or(m.Codec, CodecCompact)
	if m.LoRA != nil {
		l := m.LoRA.withDefaults() // the caller's copy does not change
		m.LoRA = &l
	}
	if m.WarmStart != nil {
		w := *m.WarmStart // the caller's copy does not change
		w.Batch = cmp.Or(w.Batch, 64)
		w.LearningRate = cmp.Or(w.LearningRate, 3e-3)
		m.WarmStart = &w
	}
	return m
}

func (a Agent) withDefaults() Agent {
	a.Queue = cmp.Or(a.Queue, defaultQueue)
	a.Limits.Calls = cmp.Or(a.Limits.Calls, 8)
	a.Limits.Seconds = cmp.Or(a.Limits.Seconds, 60)
	if len(a.Command) > 0 {
		a.Limits.OutputBytes = cmp.Or(a.Limits.OutputBytes, defaultOutputBytes)
		a.Limits.MemoryBytes = cmp.Or(a.Limits.MemoryBytes, defaultMemoryBytes)
	}
	return a
}

func (t Training) withDefaults() Training {
	t.TasksPerStep = cmp.Or(t.TasksPerStep, 16)
	t.SamplesPerTask = cmp.Or(t.SamplesPerTask, 8)
	t.Passes = cmp.Or(t.Passes, 1)
	t.Minibatches = cmp.Or(t.Minibatches, 1)
	t.Curriculum = t.Curriculum.withDefaults()
	if t.Keep != nil {
		keep := *t.Keep // the caller's copy does not change
		keep.Last = cmp.Or(keep.Last, 2)
		t.Keep = &keep
	}
	o := &t.Optimizer
	o.LearningRate = cmp.Or(o.LearningRate, 5e-4)
	o.Schedule = cmp.Or(o.Schedule, "cosine")
	if o.Schedule != ScheduleConstant {
		o.FinalFraction = cmp.Or(o.FinalFraction, 0.1)
	}
	o.ClipNorm = cmp.Or(o.ClipNorm, 1)
	o.Beta1 = cmp.Or(o.Beta1, 0.9)
	o.Beta2 = cmp.Or(o.Beta2, 0.98)
	o.Epsilon = cmp.Or(o.Epsilon, 1e-8)
	return t
}
