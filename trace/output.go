package trace

// Output is the printed output of an agent that is a program, in bounds: the beginning
// and the end of each stream, with a line between them that says how many bytes are left
// out. It explains an attempt and has no effect on its outcome.
type Output struct {
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	// LinesBefore is how many lines that aren't blank stood on standard output before
	// the last one, which alone is the result.
	LinesBefore int `json:"lines_before,omitempty"`
}
