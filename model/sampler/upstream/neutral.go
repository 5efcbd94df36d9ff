package upstream

// neutral holds the settings that change which token is sampled, at the values that
// change nothing. They are always sent: a server fills in missing ones from the model's
// generation_config.json or from its command line, and tokens would then come from
// another distribution than the recorded one.
type neutral struct {
	RepetitionPenalty float64 `json:"repetition_penalty"`
	PresencePenalty   float64 `json:"presence_penalty"`
	FrequencyPenalty  float64 `json:"frequency_penalty"`
	MinP              float64 `json:"min_p"`
	N                 int     `json:"n"`
}

func neutrals() neutral { return neutral{RepetitionPenalty: 1, N: 1} }
