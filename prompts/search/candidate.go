package search

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
)

// Prompt is one named text.
type Prompt struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Candidate is a set of named texts that may be better than the seed's.
type Candidate struct {
	// ID is a digest of the texts and their names: equal texts have equal ids.
	ID string `json:"id"`
	// Prompts are in the order of the seed's.
	Prompts []Prompt `json:"prompts"`
	// Parents are the ids of the candidates that it was made from: none for the seed, two
	// for a merge.
	Parents []string `json:"parents,omitempty"`
	// Changed are the names of the prompts whose texts are not those of the first parent.
	Changed []string `json:"changed,omitempty"`
}

// NewCandidate returns the candidate with the given texts, made from others.
func NewCandidate(prompts []Prompt, parents ...Candidate) Candidate {
	c := Candidate{Prompts: prompts, ID: digest(prompts)}
	for i, p := range parents {
		c.Parents = append(c.Parents, p.ID)
		for k, prompt := range prompts {
			if i == 0 && prompt != p.Prompts[k] {
				c.Changed = append(c.Changed, prompt.Name)
			}
		}
	}
	return c
}

// Text returns the text of a prompt, and false if there is no prompt of that name.
func (c Candidate) Text(name string) (text string, ok bool) {
	for _, p := range c.Prompts {
		if p.Name == name {
			return p.Text, true
		}
	}
	return "", false
}

// replaced returns the candidate with another text for one prompt.
func (c Candidate) replaced(prompt int, text string) Candidate {
	prompts := slices.Clone(c.Prompts)
	prompts[prompt].Text = text
	return NewCandidate(prompts, c)
}

// digest does not depend on the order of the prompts. Lengths separate the texts, so that
// no two sets of texts are written alike.
func digest(prompts []Prompt) string {
	sorted := slices.Clone(prompts)
	slices.SortFunc(sorted, func(a, b Prompt) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	h := sha256.New()
	for _, p := range sorted {
		for _, text := range []string{p.Name, p.Text} {
			h.Write([]byte(strconv.Itoa(len(text)) + ":" + text))
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}
