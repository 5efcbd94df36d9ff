package agent

// Invocation describes an attempt to an external agent. It is the body of the request to
// a service, or the argument of a workflow or an activity.
type Invocation struct {
	Task
	// Rollout is the same in each attempt.
	Rollout string `json:"rollout"`
	// BaseURL takes model calls, and ends in "/v1". APIKey belongs to the attempt.
	BaseURL string `json:"base_url"`
	APIKey  string `json:"api_key"`
	Model   string `json:"model"`
	// RewardURL takes POSTs of {"name", "value"}, EventURL of {"name", "fields"}.
	RewardURL string `json:"reward_url"`
	EventURL  string `json:"event_url"`
	// SpansURL is an OTLP endpoint, to which exporters add "/v1/traces".
	SpansURL string `json:"otlp_url"`
}

// Invocation describes the job to an external agent.
func (j Job) Invocation() Invocation {
	return Invocation{
		Task: j.Task, Rollout: j.Address.RolloutID.String(),
		BaseURL: j.BaseURL, APIKey: j.Key, Model: j.model(),
		RewardURL: j.rewardURL(), EventURL: j.eventURL(), SpansURL: j.spansURL(),
	}
}
