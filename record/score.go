package record

// Score is the reward of one sample of a task, by the attempt that counts.
type Score struct {
	Task    int     `json:"task"`
	Sample  int     `json:"sample"`
	Attempt int     `json:"attempt"`
	Reward  float64 `json:"reward"`
}
