package judge_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit/judge"
)

// The judgments of all runs so far have this prompt. A change of one of its words needs
// another promptVersion, and the new digest here.
func TestThePromptIsThatOfItsVersion(t *testing.T) {
	t.Parallel()
	a := read(recorded())
	a.Calls = a.Calls[:3] // those whose agents have names
	version, digest := judge.Shape(a)
	require.Equal(t, 1, version)
	require.Equal(t, "9c7bfda77c24d5d05d1deda8df35229b74588fc033cd670a845631f37fea78dd", digest)
}

func TestADocumentShowsTextsAsTheyAre(t *testing.T) {
	t.Parallel()
	a := attempt(1, 1)
	a.Task = `is 1<2 && "x">'y'?`
	document := judge.Document(a)
	require.True(t, strings.HasPrefix(document, "Calls to score: 1.\n{"))
	require.Contains(t, document, `is 1<2 && \"x\">'y'?`)
	require.NotContains(t, document, "demo")
}
