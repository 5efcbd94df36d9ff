package randomjudge_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/testsuite/randomjudge"
)

// The client knows the judge only as a server of OpenAI's API.
func TestNoTwoAnswersAreAlikeAndAllAreAccountedFor(t *testing.T) {
	t.Parallel()
	judge := randomjudge.New(0)
	server := httptest.NewServer(judge)
	defer server.Close()
	config := openai.DefaultConfig("")
	config.BaseURL = server.URL + "/v1"
	client := openai.NewClientWithConfig(config)
	const questions = 200
	seen, errors, nonsense := map[string]bool{}, 0, 0
	for range questions {
		answer, err := client.CreateChatCompletion(t.Context(), openai.ChatCompletionRequest{Model: "random", Messages: []openai.ChatCompletionMessage{
			{Role: "system", Content: "Judge."}, {Role: "user", Content: "Calls to score: 3."},
		}})
		if err != nil {
			errors++
			continue
		}
		var scores []float64
		if json.Unmarshal([]byte(answer.Choices[0].Message.Content), &scores) != nil {
			nonsense++
			continue
		}
		require.Len(t, scores, 3)
		for _, s := range scores {
			require.True(t, s >= 0 && s <= 10, s)
		}
		require.False(t, seen[fmt.Sprint(scores)], scores)
		seen[fmt.Sprint(scores)] = true
	}
	require.Positive(t, errors)
	require.Positive(t, nonsense)
	all := judge.Answers()
	require.Len(t, all, questions)
	for _, a := range all {
		require.Equal(t, all[0].Question, a.Question)
		if a.Scores != nil {
			require.True(t, seen[fmt.Sprint(a.Scores)], a.Scores)
		}
	}
}

func TestWhatIsNoQuestionIsRefused(t *testing.T) {
	t.Parallel()
	judge := randomjudge.New(0)
	server := httptest.NewServer(judge)
	defer server.Close()
	for _, bad := range []string{"", "{}", `{"messages": [{"role": "system", "content": "Judge."}, {"role": "user", "content": "this"}]}`} {
		r, err := server.Client().Post(server.URL, "application/json", strings.NewReader(bad))
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, 400, r.StatusCode)
	}
	require.Empty(t, judge.Answers())
}
