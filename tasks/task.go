package tasks

// Task is one item to attempt.
type Task struct {
	ID    string `json:"id"`
	Input string `json:"input"` // text; JSON of another type is kept as its text
	// Answer is what graders compare with. Agents never see it.
	Answer   string         `json:"answer,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}
