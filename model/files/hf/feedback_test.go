package hf_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

func drawTokens(t *rapid.T, name string) []int32 {
	return rapid.SliceOfN(rapid.Int32Range(0, vocabulary-1), 1, 6).Draw(t, name)
}

// drawFeedback returns a batch of corrected texts or of pairs, of one policy or of two.
func drawFeedback(t *rapid.T) model.Batch {
	b := model.Batch{Policy: "main", Step: 1, VocabSize: vocabulary}
	several, pairs := rapid.Bool().Draw(t, "several policies"), rapid.Bool().Draw(t, "pairs")
	for i := range rapid.IntRange(1, 4).Draw(t, "texts") {
		b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: fmt.Sprint("reply ", i), Group: i})
		rows := []model.BatchRow{model.SupervisedRow(drawTokens(t, "prompt"), drawTokens(t, "text"), i)}
		if pairs {
			rejected := append([]int32{0}, drawTokens(t, "rejected")...)
			pair := model.PreferenceRows(drawTokens(t, "prompt"), append([]int32{1}, drawTokens(t, "chosen")...), rejected, 3*i, i, i)
			rows = pair[:]
		}
		for k := range rows {
			if several {
				rows[k].Policy = []string{"checker", "writer"}[i%2]
			}
		}
		b.Rows = append(b.Rows, rows...)
	}
	b.Count()
	return b
}

func TestBatchesOfFeedbackRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawFeedback(t)
		require.Equal(t, model.FeedbackBatchFormat, b.Format)
		file, err := hf.EncodeBatch(b)
		require.NoError(t, err)
		got, err := hf.DecodeBatch(file)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(b, got, cmpopts.EquateEmpty()))
		again, err := hf.EncodeBatch(got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(file, again))
	})
}

// feedbackArrays returns the arrays of two rows of one prompt, of 3 and 2 tokens.
func feedbackArrays() map[string]any {
	all := arrays()
	all["tokens"], all["calls"] = []int32{4, 2, 3, 4, 5}, []int32{-1, 0, 0, -1, 0}
	all["logprobs"], all["advantages"] = make([]float32, 5), make([]float32, 5)
	all["temperatures"] = []float64{1, 1}
	return all
}

const feedbackJSON = `{"format":"fulgurite.batch/4","policy":"main","step":1,"vocab_size":50,"denominators":{"tokens":3,"sequences":2},
	"trajectories":[{"attempt":"demo/train-1/0/0/1","group":0,"reward":1,"advantage":0.5,"trained":3}],"objective":"OBJECTIVE"}`

func TestPairsOfAnotherWriterAreRead(t *testing.T) {
	t.Parallel()
	text := strings.Replace(feedbackJSON, "OBJECTIVE", "preference", 1)
	all := feedbackArrays()
	all["pairs"], all["chosen"] = []int32{7, 7}, []uint8{0, 1}
	b, err := hf.DecodeBatch(encode(t, all, text))
	require.NoError(t, err)
	require.Equal(t, []int{7, 7}, []int{b.Rows[0].Pair, b.Rows[1].Pair})
	require.Equal(t, []bool{false, true}, []bool{b.Rows[0].Chosen, b.Rows[1].Chosen})
	for want, change := range map[string]func(all map[string]any){
		"2 rows, 1 pairs, 2 chosen":        func(all map[string]any) { all["pairs"] = []int32{7} },
		"2 rows, 2 pairs, 3 chosen":        func(all map[string]any) { all["chosen"] = []uint8{0, 1, 1} },
		"row 0: chosen is 2":               func(all map[string]any) { all["chosen"] = []uint8{2, 1} },
		"array pairs":                      func(all map[string]any) { delete(all, "pairs") },
		"array chosen":                     func(all map[string]any) { delete(all, "chosen") },
		"pair 7: row 0 has no chosen half": func(all map[string]any) { all["pairs"] = []int32{7, 8} },
		"their prompts":                    func(all map[string]any) { all["tokens"] = []int32{1, 2, 3, 4, 5} },
	} {
		all := feedbackArrays()
		all["pairs"], all["chosen"] = []int32{7, 7}, []uint8{0, 1}
		change(all)
		_, err := hf.DecodeBatch(encode(t, all, text))
		require.ErrorContains(t, err, want)
	}
}

func TestAnObjectiveThatIsNotKnownIsRefused(t *testing.T) {
	t.Parallel()
	for objective, want := range map[string]string{
		"supervised": "",
		"kto":        `unknown objective "kto"`,
		"":           `format is "fulgurite.batch/4", want "fulgurite.batch/1"`,
	} {
		_, err := hf.DecodeBatch(encode(t, feedbackArrays(), strings.Replace(feedbackJSON, "OBJECTIVE", objective, 1)))
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
	_, err := hf.DecodeBatch(encode(t, feedbackArrays(), strings.Replace(strings.Replace(feedbackJSON, "OBJECTIVE", "supervised", 1), "batch/4", "batch/1", 1)))
	require.ErrorContains(t, err, `format is "fulgurite.batch/1", want "fulgurite.batch/4"`)
}

// Digests of batches are on record, so the bytes of a batch must not change.
func TestABatchOfPairsHasTheBytesItAlwaysHad(t *testing.T) {
	t.Parallel()
	all := feedbackArrays()
	all["pairs"], all["chosen"] = []int32{7, 7}, []uint8{0, 1}
	b, err := hf.DecodeBatch(encode(t, all, strings.Replace(feedbackJSON, "OBJECTIVE", "preference", 1)))
	require.NoError(t, err)
	file, err := hf.EncodeBatch(b)
	require.NoError(t, err)
	sum := sha256.Sum256(file)
	require.Equal(t, "c36d3ba645b0cac789c492dd77ab6d897b1f8046f49eb79b99c780584b5c3f39", hex.EncodeToString(sum[:]))
}
