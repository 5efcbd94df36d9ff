package trace

// Output is what an agent that is a program printed, in bounds: the beginning
// and the end of each stream, with a line between them that says how many bytes are left
// out. It explains an attempt and is no part of what counts.
type Output struct {
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	// LinesBefore is how many lines that aren't blank stood on standard output before
	// the last one, which alone is the result.
	LinesBefore int `json:"lines_before,omitempty"`
}
