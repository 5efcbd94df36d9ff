package judge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Read is the reader of answers.
var Read = read

// Excerpt is what a long text is told by.
var Excerpt = excerpt

// Shape is the version of the prompt, and a digest of all its texts around an
// attempt, and of the attempt's shape.
func Shape(a Attempt) (version int, digest string) {
	t, err := Options{Rubric: "R"}.told(a)
	if err != nil {
		panic(err)
	}
	var text string
	for _, m := range t.again("A", fmt.Errorf("why")) {
		text += m.Role + "\n" + m.Content + "\n"
	}
	sum := sha256.Sum256([]byte(text))
	return promptVersion, hex.EncodeToString(sum[:])
}

// Document is an attempt as a judge reads it.
func Document(a Attempt) string {
	t, err := Options{}.told(a)
	if err != nil {
		panic(err)
	}
	return t.document
}
