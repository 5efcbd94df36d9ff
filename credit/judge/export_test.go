package judge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Read parses answers.
var Read = read

// Truncate is what a judge reads of a long text.
var Truncate = truncate

// Shape returns the version of the prompt, and a digest of all its texts around an
// attempt and of the attempt's JSON form.
func Shape(a Attempt) (version int, digest string) {
	p, err := Options{Rubric: "R"}.prompt(a)
	if err != nil {
		panic(err)
	}
	var text string
	for _, m := range p.retryMessages("A", fmt.Errorf("why")) {
		text += m.Role + "\n" + m.Content + "\n"
	}
	sum := sha256.Sum256([]byte(text))
	return promptVersion, hex.EncodeToString(sum[:])
}

// Document returns an attempt as a judge reads it.
func Document(a Attempt) string {
	p, err := Options{}.prompt(a)
	if err != nil {
		panic(err)
	}
	return p.document
}
