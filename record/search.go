package record

import (
	"encoding/json"
	"time"
)

// PromptsPolicy is the name of the policy whose versions are prompts and not weights. A
// run that searches for better prompts compares, promotes and rolls back these.
const PromptsPolicy = "prompts"

// SearchAnswer is the answer to one request of a search for better prompts. The first
// answer to a request is final. Everything that the search decided follows from its
// settings and these. Key: Run, Request.
type SearchAnswer struct {
	Run string `json:"run"`
	// Number counts the answers of a run in the order in which they came, from 0. The
	// store sets it.
	Number  int             `json:"number"`
	Request string          `json:"request"`
	Answer  json.RawMessage `json:"answer"`
	// Reflection is the key of the reply that the answer was read from. It is empty if no
	// reflector was asked.
	Reflection string    `json:"reflection,omitempty"`
	At         time.Time `json:"at"`
}

// Reflection is a reflector's reply. The first reply is final, so that every later request
// for it, in this run or another, gets the same. Key: Key.
type Reflection struct {
	Key   string          `json:"key"` // SHA-256 of all that the reflector was told, hex
	Reply ReflectionReply `json:"reply"`
	// Run and Request say which request of which search asked for it.
	Run     string    `json:"run"`
	Request string    `json:"request"`
	At      time.Time `json:"at"`
}

// ReflectionReply is what a reflector replied, and what that cost.
type ReflectionReply struct {
	Model string `json:"model"`
	Text  string `json:"text"`
	// CutOff says that the reply ended because it was too long.
	CutOff       bool `json:"cut_off,omitempty"`
	InputTokens  int  `json:"input_tokens,omitempty"`
	OutputTokens int  `json:"output_tokens,omitempty"`
}

// PromptVersion is a version of a run's prompts: number 0 is the spec's, and every later
// one the winner of a search. Key: Run, Number.
type PromptVersion struct {
	Run    string `json:"run"`
	Number int    `json:"number"`
	Parent int    `json:"parent"` // -1 for number 0
	// Prompts is the blob with the texts and rules, as the terms of attempts name it.
	Prompts string `json:"prompts"`
	// Candidate is the id of the search's candidate.
	Candidate string    `json:"candidate,omitempty"`
	At        time.Time `json:"at"`
}
