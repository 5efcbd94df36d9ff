package judge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/credit/judge"
)

func TestEveryCallOfEveryAttemptIsScored(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	c.reply = fair
	j := c.judge(func(o *judge.Options) { o.Key, o.Rubric = "secret", "Short answers." })
	got, err := j.Scores(t.Context(), attempts(2, 0, 3, 1))
	require.NoError(t, err)
	require.Equal(t, [][]float64{{0, 1}, {}, {0.2, 1.2, 2.2}, {0.3}}, got)
	require.Len(t, c.asked, 3, "nothing is asked about an attempt without calls")
	for i, q := range c.asked {
		require.Equal(t, "m", q.Model)
		require.Len(t, q.Messages, 2)
		require.Contains(t, q.Messages[0].Content, "What makes a call good here:\nShort answers.")
		require.NotContains(t, q.Messages[1].Content, "train-3", "a judge does not see addresses")
		require.Equal(t, "Bearer secret", c.keys[i])
	}
	require.Equal(t, judge.Progress{Judged: 3, Asked: 3}, j.Progress())
}

func TestAJudgmentIsMadeOnce(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	c.reply = fair
	first, err := c.judge(nil).Scores(t.Context(), attempts(2, 3))
	require.NoError(t, err)
	c.reply = func(int, openai.ChatCompletionRequest) (int, string) { return http.StatusOK, "[9]" }
	for _, run := range []string{"demo", "another"} {
		again, err := c.judgeOf(run, nil).Scores(t.Context(), attempts(2, 3))
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
	require.Equal(t, 2, c.requests())
	n, err := c.store.Judged(t.Context(), "another", "main", 3)
	require.NoError(t, err)
	require.Zero(t, n, "the run that found them made none")

	c.reply = fair
	_, err = c.judge(func(o *judge.Options) { o.Model = "other" }).Scores(t.Context(), attempts(2, 3))
	require.NoError(t, err)
	require.Equal(t, 4, c.requests(), "another model is another judge")
	_, err = c.judge(func(o *judge.Options) { o.Rubric = "other" }).Scores(t.Context(), attempts(2, 3))
	require.NoError(t, err)
	require.Equal(t, 6, c.requests(), "and another rubric another judgment")
}

func TestAttemptsThatAreAlikeAreAskedAboutOnce(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	c.reply = fair
	twin := attempt(1, 2)
	twin.Address.Sample = 5
	got, err := c.judge(nil).Scores(t.Context(), []judge.Attempt{attempt(1, 2), attempt(2, 1), twin})
	require.NoError(t, err)
	require.Equal(t, [][]float64{{0.1, 1.1}, {0.2}, {0.1, 1.1}}, got)
	require.Equal(t, 2, c.requests())
}

// Two workers that both work on the step may judge it at the same time. Both continue
// with the same scores.
func TestOfTwoJudgesAtOnceTheFirstCounts(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	c.reply = func(k int, q openai.ChatCompletionRequest) (int, string) {
		return http.StatusOK, fmt.Sprintf("[%d]", k%10)
	}
	got := make([][][]float64, 4)
	var g errgroup.Group
	for i := range got {
		g.Go(func() (err error) {
			got[i], err = c.judge(nil).Scores(t.Context(), attempts(1, 1, 1, 1, 1))
			return err
		})
	}
	require.NoError(t, g.Wait())
	for _, one := range got {
		require.Equal(t, got[0], one)
	}
}

// A worker that hung, and continues after another one has judged the step, makes no
// requests.
func TestWhatAnotherHasJudgedMeanwhileIsNotAsked(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	awake, full := make(chan struct{}), make(chan struct{})
	c.reply = func(k int, q openai.ChatCompletionRequest) (int, string) {
		if k == 7 {
			close(full)
		}
		if k < 8 {
			<-awake
		}
		return fair(k, q)
	}
	step := attempts(1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2)
	var late [][]float64
	var g errgroup.Group
	g.Go(func() (err error) {
		late, err = c.judge(nil).Scores(t.Context(), step)
		return err
	})
	<-full
	scores, err := c.judge(nil).Scores(t.Context(), step)
	require.NoError(t, err)
	close(awake)
	require.NoError(t, g.Wait())
	require.Equal(t, scores, late)
	require.Equal(t, 8+12, c.requests())
}

func TestEightAreAskedAtOnce(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	var now, most atomic.Int64
	full, once := make(chan struct{}), sync.Once{}
	c.reply = func(k int, q openai.ChatCompletionRequest) (int, string) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == 8 {
			once.Do(func() { close(full) })
		}
		<-full
		return fair(k, q)
	}
	_, err := c.judge(nil).Scores(t.Context(), attempts(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1))
	require.NoError(t, err)
	require.EqualValues(t, 8, most.Load())
}

func TestNonsenseIsAskedAboutAgain(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	nonsense := []string{"I'd rather not.", "[1]", "[1, 11]", "", "The scores: [3, 7.5]"}
	c.reply = func(k int, _ openai.ChatCompletionRequest) (int, string) { return http.StatusOK, nonsense[k] }
	j := c.judge(nil)
	got, err := j.Scores(t.Context(), attempts(2))
	require.NoError(t, err)
	require.Equal(t, [][]float64{{3, 7.5}}, got)
	for i, why := range []string{
		"That can't be used: it has no JSON array of numbers. Answer with a JSON array of exactly 2 numbers",
		"it has 1 scores, and there are 2 calls", "score 2 is 11, which is not from 0 to 10", "it has no JSON array",
	} {
		q := c.asked[i+1]
		require.Len(t, q.Messages, 4, "only the last answer is repeated")
		require.Equal(t, nonsense[i], q.Messages[2].Content)
		require.Contains(t, q.Messages[3].Content, why)
	}
	onRecord, err := c.store.Nonsense(t.Context(), "demo", "main", 3)
	require.NoError(t, err)
	require.Len(t, onRecord, 4)
	for i, n := range onRecord {
		require.Equal(t, i+1, n.Try)
		require.Equal(t, nonsense[i], n.Answer)
		require.NotEmpty(t, n.Reason)
	}
	require.Equal(t, judge.Progress{Judged: 1, Asked: 5}, j.Progress())
}

func TestAJudgeOfNothingButNonsenseIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	c.reply = func(int, openai.ChatCompletionRequest) (int, string) { return http.StatusOK, "[1, 2, 3]" }
	about := []judge.Attempt{attempt(7, 2)}
	_, err := c.judge(nil).Scores(t.Context(), about)
	require.ErrorIs(t, err, judge.ErrNonsense)
	require.ErrorContains(t, err, `judge attempt demo/train-3/7/0/1 by m: the judge's answers can't be read, 5 times; at last: it has 3 scores, and there are 2 calls: "[1, 2, 3]"`)
	require.Equal(t, 5, c.requests())
	_, err = c.judge(nil).Scores(t.Context(), about)
	require.ErrorIs(t, err, judge.ErrNonsense)
	require.Equal(t, 5, c.requests(), "and whoever comes next does not ask five times more")
}

func TestAStepNeverMakesMoreRequestsThanItMay(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	c.reply = fair
	few := func(o *judge.Options) { o.Requests = 2 }
	_, err := c.judge(few).Scores(t.Context(), attempts(1, 1, 1))
	require.ErrorIs(t, err, judge.ErrRequests)
	require.ErrorContains(t, err, "3 attempts of step 3 still need a judgment, and credit.judge.requests allows 2, of which 0 were used for judgments and 0 for answers that could not be read")
	require.Zero(t, c.requests(), "what can't be finished is not begun")

	_, err = c.judge(few).Scores(t.Context(), attempts(1))
	require.NoError(t, err)
	_, err = c.judge(few).Scores(t.Context(), attempts(1, 1, 1))
	require.ErrorContains(t, err, "2 attempts of step 3 still need a judgment, and credit.judge.requests allows 2, of which 1 were used for judgments")
	_, err = c.judge(few).Scores(t.Context(), attempts(1, 1))
	require.NoError(t, err)
	_, err = c.judgeOf("another", few).Scores(t.Context(), attempts(1, 1))
	require.NoError(t, err, "what stands costs nothing")
	require.Equal(t, 2, c.requests())
}

func TestNonsenseUsesRequestsUp(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	c.reply = func(int, openai.ChatCompletionRequest) (int, string) { return http.StatusOK, "no" }
	_, err := c.judge(func(o *judge.Options) { o.Requests = 3 }).Scores(t.Context(), attempts(1))
	require.ErrorIs(t, err, judge.ErrRequests)
	require.ErrorContains(t, err, "judge attempt demo/train-3/0/0/1 by m: no requests are left: answers that could not be read have used up what credit.judge.requests allows, 3")
	require.Equal(t, 3, c.requests())
	c.reply = fair
	_, err = c.judge(func(o *judge.Options) { o.Requests = 3 }).Scores(t.Context(), attempts(1))
	require.ErrorContains(t, err, "0 were used for judgments and 3 for answers that could not be read", "whoever goes on in another process knows")
	_, err = c.judge(func(o *judge.Options) { o.Requests = 4 }).Scores(t.Context(), attempts(1))
	require.NoError(t, err)
}

func TestAJudgeThatIsAwayIsAskedLater(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusUnauthorized, http.StatusNotFound} {
		c := newJudgeServer(t)
		away := atomic.Bool{}
		away.Store(true)
		c.reply = func(k int, q openai.ChatCompletionRequest) (int, string) {
			if about(q).Task == "task 1." && away.Load() {
				return status, "gone fishing"
			}
			return fair(k, q)
		}
		// There are as many requests as attempts: a request that is not answered does not
		// count.
		exactly := func(o *judge.Options) { o.Requests = 3 }
		_, err := c.judge(exactly).Scores(t.Context(), attempts(1, 1, 1))
		require.ErrorContains(t, err, "judge attempt demo/train-3/1/0/1 by m")
		require.ErrorContains(t, err, "gone fishing")
		for _, final := range []error{judge.ErrNonsense, judge.ErrRequests, judge.ErrRefused} {
			require.NotErrorIs(t, err, final)
		}
		away.Store(false)
		got, err := c.judge(exactly).Scores(t.Context(), attempts(1, 1, 1))
		require.NoError(t, err)
		require.Equal(t, [][]float64{{0}, {0.1}, {0.2}}, got)
		seen := map[string]int{}
		for _, q := range c.asked {
			seen[about(q).Task]++
		}
		require.Equal(t, 1, seen["task 0."], "what was judged is not asked again")
	}
}

// A page, or an object that is no chat completion, comes from a proxy in the judge's place.
func TestWhatAProxySaysIsNoJudgment(t *testing.T) {
	t.Parallel()
	for _, says := range []string{"<html>Sign in</html>", `{"status":"accepted"}`, `{"error":"overloaded"}`, ""} {
		c := newJudgeServer(t)
		c.reply = fair
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, says) }))
		_, err := c.judge(func(o *judge.Options) { o.URL = server.URL + "/v1" }).Scores(t.Context(), attempts(1))
		server.Close()
		require.Error(t, err, says)
		for _, final := range []error{judge.ErrNonsense, judge.ErrRequests, judge.ErrRefused} {
			require.NotErrorIs(t, err, final, says)
		}
	}
}

func TestARequestThatIsRefusedAsSuchIsFinal(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity} {
		c := newJudgeServer(t)
		c.reply = func(int, openai.ChatCompletionRequest) (int, string) { return status, "the context is too long" }
		_, err := c.judge(nil).Scores(t.Context(), attempts(1))
		require.ErrorIs(t, err, judge.ErrRefused)
		require.ErrorContains(t, err, "the context is too long")
	}
}

func TestTooManyRequestsAreSentAgain(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	c.reply = func(k int, q openai.ChatCompletionRequest) (int, string) {
		if k < 3 {
			return http.StatusTooManyRequests, "slow down"
		}
		return fair(k, q)
	}
	j := c.judge(nil)
	got, err := j.Scores(t.Context(), attempts(2))
	require.NoError(t, err)
	require.Equal(t, [][]float64{{0, 1}}, got)
	require.Equal(t, 4, c.requests())
	require.Equal(t, judge.Progress{Judged: 1, Asked: 1}, j.Progress())
}

func TestAFaultOfTheServerIsPassedOver(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	c.reply = func(k int, q openai.ChatCompletionRequest) (int, string) {
		if k < 2 {
			return http.StatusBadGateway, "a hiccup"
		}
		return fair(k, q)
	}
	got, err := c.judge(nil).Scores(t.Context(), attempts(2))
	require.NoError(t, err)
	require.Equal(t, [][]float64{{0, 1}}, got)
	require.Equal(t, 3, c.requests())

	c.reply = func(int, openai.ChatCompletionRequest) (int, string) { return http.StatusBadGateway, "gone" }
	_, err = c.judge(nil).Scores(t.Context(), []judge.Attempt{attempt(7, 1)})
	require.ErrorContains(t, err, "gone")
	require.Equal(t, 6, c.requests(), "but not for ever")
}

func TestAnAnswerThatTakesTooLongIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	hold := make(chan struct{})
	defer close(hold)
	c.reply = func(int, openai.ChatCompletionRequest) (int, string) {
		<-hold
		return http.StatusOK, "[1]"
	}
	_, err := c.judge(func(o *judge.Options) { o.Timeout = 20 * time.Millisecond }).Scores(t.Context(), attempts(1))
	require.ErrorContains(t, err, "no answer within 20ms")
	require.NotErrorIs(t, err, judge.ErrRefused)
}

func TestAJudgeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the worker stops")
	c.reply = func(int, openai.ChatCompletionRequest) (int, string) {
		cancel(why)
		return http.StatusServiceUnavailable, strings.Repeat("x", 1<<10)
	}
	_, err := c.judge(nil).Scores(ctx, attempts(1, 1))
	require.Error(t, err)
}

func TestABodyWithoutEndIsNotReadToIt(t *testing.T) {
	t.Parallel()
	c := newJudgeServer(t)
	c.reply = func(int, openai.ChatCompletionRequest) (int, string) {
		return http.StatusOK, strings.Repeat(" ", 5<<20) + "[1]"
	}
	_, err := c.judge(nil).Scores(t.Context(), attempts(1))
	require.ErrorContains(t, err, "too large")
}
