package spec

import (
	"cmp"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

// Values of traffic.record.
const (
	RecordNone    = "none"
	RecordConsent = "with-consent"
	RecordAll     = "all"
)

// Values of traffic.on_failure.
const (
	FailUnrecorded  = "fail"
	ServeUnrecorded = "serve"
)

// Values of traffic.train.objective.
const (
	ObjectiveReward     = "reward"
	ObjectiveSupervised = "supervised"
	ObjectivePreference = "preference"
)

// KeyRecord is the key of what is recorded, which may be set while the run goes on and after
// its end.
const KeyRecord = "traffic.record"

// Recordings returns the values of KeyRecord.
func Recordings() []string { return []string{RecordNone, RecordConsent, RecordAll} }

// Traffic says what is kept of the conversations that the run's versions have at /v1, and
// what is learned from them.
type Traffic struct {
	// Record says which conversations are recorded: "none", "with-consent" (those whose key
	// has the scope consent, or whose requests have the header X-Fulgurite-Consent: true), or
	// "all".
	Record string `json:"record,omitempty"`
	// OnFailure says what happens to a reply that can't be recorded: "fail" refuses it,
	// "serve" delivers it and counts it.
	OnFailure string `json:"on_failure,omitempty"`
	// IdleMinutes is how long a conversation is without a request before it counts as ended.
	// Only what has ended is learned from.
	IdleMinutes float64 `json:"idle_minutes,omitempty"`
	// MaxCalls is the most calls of one conversation. A request beyond them begins another
	// conversation, or is refused if the client has named the conversation.
	MaxCalls int `json:"max_calls,omitempty"`
	// RetentionDays is how long a conversation is kept after its last request. Absent or 0
	// keeps it until somebody removes it.
	RetentionDays float64 `json:"retention_days,omitempty"`
	// Redactor is a program that rewrites texts before they are stored. Absent means that
	// they are stored as they are.
	Redactor *Redactor `json:"redactor,omitempty"`
	// Train makes the steps of the run out of conversations instead of tasks: each segment
	// is one step. Absent means that conversations are recorded only.
	Train *TrafficTraining `json:"train,omitempty"`
}

// Redactor is a program that rewrites texts. It reads one JSON object a line from standard
// input, {"text": "…"}, and writes one a line in the same order. What it changes is stored
// without tokens, so that no weights are trained on it.
type Redactor struct {
	// Command is the program and its arguments.
	Command []string `json:"command"`
	// TimeoutSeconds is how long it may take for one text. It has a minute more for the first
	// one after its start.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
}

// TrafficTraining says how a segment of conversations becomes a step.
type TrafficTraining struct {
	// Objective says what is learned: "reward" (replies and conversations with rewards or
	// thumbs, by policy gradient), "supervised" (corrected texts), or "preference" (pairs of
	// replies to the same request, by DPO).
	Objective string `json:"objective,omitempty"`
	// MinReplies is the fewest replies, or pairs, that make a segment. With fewer, no step is
	// made.
	MinReplies int `json:"min_replies,omitempty"`
	// MaxReplies is the most replies, or pairs, of a segment. More are left to the next.
	MaxReplies int `json:"max_replies,omitempty"`
	// Shadow lets a version that passed the gate answer prompts on record, before anything else
	// becomes of it. Absent means that it is not asked.
	Shadow *TrafficShadow `json:"shadow,omitempty"`
	// Experiment compares a version that passed the gate with the promoted one in use, before
	// it is promoted. Absent means that the gate alone decides.
	Experiment *TrafficExperiment `json:"experiment,omitempty"`
}

// TrafficShadow is a comparison of a version's replies with those on record to the same prompts.
// Nobody is shown the replies.
type TrafficShadow struct {
	// Replies is how many recorded replies of the promoted version are compared at most, those
	// of the newest conversations.
	Replies int `json:"replies,omitempty"`
	// Level bounds the probability that a version is withdrawn although no more of its replies
	// are cut off, empty or failed.
	Level float64 `json:"level,omitempty"`
	// Minutes is how long the version has for its replies. What it has replied by then counts.
	Minutes float64 `json:"minutes,omitempty"`
}

// TrafficExperiment is a comparison of two versions by the feedback of users.
type TrafficExperiment struct {
	// Share is the share of users that the candidate answers.
	Share float64 `json:"share,omitempty"`
	// Level bounds the probability that a candidate which is no better is promoted, or one
	// which is no worse withdrawn.
	Level float64 `json:"level,omitempty"`
	// MinConversations is how many conversations with feedback each version needs before
	// anything is decided.
	MinConversations int `json:"min_conversations,omitempty"`
	// MaxConversations is how many conversations with feedback end the experiment without a
	// promotion.
	MaxConversations int `json:"max_conversations,omitempty"`
}

// DefaultMaxCalls is traffic.max_calls of a run that does not say.
const DefaultMaxCalls = 1000

const (
	defaultIdleMinutes     = 30
	defaultRedactorSeconds = 10
	defaultMinReplies      = 32
	defaultMaxReplies      = 1024
	defaultShare           = 0.1
	defaultLevel           = 0.05
	defaultMinConversation = 50
	defaultMaxConversation = 5000
	defaultShadowReplies   = 200
	defaultShadowMinutes   = 30

	// minShadowReplies is enough for a difference to be significant at the smallest level.
	minShadowReplies = 16
	maxShadowReplies = 2000
	// defaultSegments is the number of steps of a run that learns from conversations.
	defaultSegments = 1000
)

// FromTraffic reports whether the run's steps are made of conversations.
func (s Spec) FromTraffic() bool { return s.Traffic != nil && s.Traffic.Train != nil }

func (t *Traffic) withDefaults() *Traffic {
	if t == nil {
		return nil
	}
	out := *t
	out.Record = cmp.Or(out.Record, RecordNone)
	out.OnFailure = cmp.Or(out.OnFailure, FailUnrecorded)
	out.IdleMinutes = cmp.Or(out.IdleMinutes, defaultIdleMinutes)
	out.MaxCalls = cmp.Or(out.MaxCalls, DefaultMaxCalls)
	if out.Redactor != nil {
		r := *out.Redactor
		r.TimeoutSeconds = cmp.Or(r.TimeoutSeconds, defaultRedactorSeconds)
		out.Redactor = &r
	}
	if out.Train != nil {
		train := *out.Train
		train.Objective = cmp.Or(train.Objective, ObjectiveReward)
		train.MinReplies = cmp.Or(train.MinReplies, defaultMinReplies)
		train.MaxReplies = cmp.Or(train.MaxReplies, max(defaultMaxReplies, train.MinReplies))
		if train.Shadow != nil {
			shadow := *train.Shadow
			shadow.Replies, shadow.Level = cmp.Or(shadow.Replies, defaultShadowReplies), cmp.Or(shadow.Level, defaultLevel)
			shadow.Minutes = cmp.Or(shadow.Minutes, defaultShadowMinutes)
			train.Shadow = &shadow
		}
		if train.Experiment != nil {
			e := *train.Experiment
			e.Share, e.Level = cmp.Or(e.Share, defaultShare), cmp.Or(e.Level, defaultLevel)
			e.MinConversations = cmp.Or(e.MinConversations, defaultMinConversation)
			e.MaxConversations = cmp.Or(e.MaxConversations, max(defaultMaxConversation, e.MinConversations))
			train.Experiment = &e
		}
		out.Train = &train
	}
	return &out
}

func (s Spec) checkTraffic(f *Faults) {
	t := s.Traffic
	if t == nil {
		return
	}
	f.choice(KeyRecord, t.Record)
	f.choice("traffic.on_failure", t.OnFailure)
	f.number("traffic.idle_minutes", t.IdleMinutes, bounds.Between(0.001, 1e6))
	f.whole("traffic.max_calls", t.MaxCalls, 1, 1e6)
	f.number("traffic.retention_days", t.RetentionDays, bounds.Between(0, 1e5))
	if r := t.Redactor; r != nil {
		if len(r.Command) == 0 {
			f.add("traffic.redactor.command", "give a program and its arguments", "missing")
		}
		f.program("traffic.redactor.command", r.Command)
		f.number("traffic.redactor.timeout_seconds", r.TimeoutSeconds, bounds.Between(0.01, 600))
	}
	f.unused("traffic", s.Evaluation.Only != "", "an evaluation promotes no version that could be served")
	train := t.Train
	if train == nil {
		return
	}
	f.choice("traffic.train.objective", train.Objective)
	f.whole("traffic.train.min_replies", train.MinReplies, 1, 1e6)
	f.whole("traffic.train.max_replies", train.MaxReplies, train.MinReplies, 1e6)
	f.unused("traffic.train", len(s.Policies) > 0, "conversations train one policy")
	f.unused("traffic.train", s.Optimizer != nil, "a search for prompts trains no weights")
	f.unused("training.curriculum", s.Training.Curriculum != nil, "steps are made of conversations, not of tasks")
	f.unused("training.lag", s.Training.Lag > 0, "segments follow each other")
	f.unused("training.epochs", s.Training.Epochs != 0, "there are no tasks to pass over; give training.steps")
	f.unused("training.dynamic_sampling", s.Training.DynamicSampling > 0, "steps are made of conversations, not of tasks")
	f.unused("critic", s.Critic != nil, "judged replies have a baseline of their own")
	f.unused("credit.judge", s.Credit.Judge != nil, "people judge the replies")
	f.unused("credit.kl_in_reward", s.Credit.KLInReward != nil, "people judge the replies; give loss.kl")
	f.unused("tasks.train", s.Tasks.Train != "", "steps are made of conversations, not of tasks; give tasks.gate, on which versions are compared")
	if shadow := train.Shadow; shadow != nil {
		f.whole("traffic.train.shadow.replies", shadow.Replies, minShadowReplies, maxShadowReplies)
		f.number("traffic.train.shadow.level", shadow.Level, bounds.Between(0.0001, 0.5))
		f.number("traffic.train.shadow.minutes", shadow.Minutes, bounds.Between(0.01, 1200))
		f.unused("traffic.train.shadow", s.Tasks.Gate == "", "without tasks.gate no version is a candidate")
	}
	if e := train.Experiment; e != nil {
		f.number("traffic.train.experiment.share", e.Share, bounds.Between(0.001, 0.999))
		f.number("traffic.train.experiment.level", e.Level, bounds.Between(0.0001, 0.5))
		f.whole("traffic.train.experiment.min_conversations", e.MinConversations, 1, 1e7)
		f.whole("traffic.train.experiment.max_conversations", e.MaxConversations, e.MinConversations, 1e8)
		if smaller := float64(e.MaxConversations) * min(e.Share, 1-e.Share); smaller < float64(e.MinConversations) {
			f.add("traffic.train.experiment.max_conversations", "give more, a larger share, or a smaller min_conversations",
				"the smaller share of %d conversations is about %d, which is less than min_conversations", e.MaxConversations, int(smaller))
		}
		f.unused("traffic.train.experiment", s.Tasks.Gate == "", "without tasks.gate no version is a candidate")
	}
	s.checkObjective(f)
}

// checkObjective reports keys of the loss that the objective can't have.
func (s Spec) checkObjective(f *Faults) {
	var err error
	switch s.Traffic.Train.Objective {
	case ObjectiveSupervised:
		_, err = s.Loss.SupervisedLoss()
	case ObjectivePreference:
		_, err = s.Loss.PreferenceLoss()
	}
	if err != nil {
		f.add("traffic.train.objective", "leave that key out, or give another objective", "%v", err)
	}
}
