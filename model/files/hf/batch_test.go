package hf_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

const vocabulary = 50

func drawBatch(t *rapid.T) model.Batch {
	b := model.Batch{Policy: "main", Step: rapid.IntRange(1, 9).Draw(t, "step"), VocabSize: vocabulary}
	for i := range rapid.IntRange(1, 4).Draw(t, "trajectories") {
		b.Trajectories = append(b.Trajectories, model.BatchTrajectory{
			Attempt: fmt.Sprintf("demo/train-1/%d/0/1", i), Group: i / 2,
			Reward: rapid.Float64Range(-1, 1).Draw(t, "reward"), Advantage: rapid.Float64Range(-3, 3).Draw(t, "advantage"),
		})
	}
	critic := rapid.Bool().Draw(t, "critic")
	for range rapid.IntRange(0, 5).Draw(t, "rows") {
		r := drawRow(t, len(b.Trajectories))
		if critic {
			r.Returns = drawReturns(t, r)
		}
		b.Rows = append(b.Rows, r)
	}
	b.Count()
	return b
}

func drawRow(t *rapid.T, trajectories int) model.BatchRow {
	n := rapid.IntRange(2, 8).Draw(t, "tokens")
	r := model.BatchRow{
		Row:     model.Row{Tokens: make([]int32, n), Temperature: rapid.Float64Range(1e-3, 2).Draw(t, "temperature")},
		Sampled: make([]bool, n), Logprobs: make([]float32, n), Advantages: make([]float32, n), Calls: make([]int32, n),
		Trajectory: rapid.IntRange(0, trajectories-1).Draw(t, "trajectory"),
	}
	for i := range n {
		r.Tokens[i], r.Calls[i] = rapid.Int32Range(0, vocabulary-1).Draw(t, "token"), -1
		if i > 0 && rapid.Bool().Draw(t, "sampled") {
			r.Sampled[i], r.Calls[i] = true, rapid.Int32Range(0, 9).Draw(t, "call")
			r.Logprobs[i] = rapid.Float32Range(-20, 0).Draw(t, "logprob")
			r.Advantages[i] = rapid.Float32Range(-3, 3).Draw(t, "token advantage")
		}
	}
	for from := 1; from < n && rapid.Bool().Draw(t, "form"); {
		length := rapid.IntRange(1, n-from).Draw(t, "length")
		r.Forms = append(r.Forms, model.BatchForm{Start: from, Length: length, Form: drawForm(t)})
		from += length
	}
	return r
}

func drawReturns(t *rapid.T, r model.BatchRow) []float32 {
	out := make([]float32, len(r.Tokens))
	for i, sampled := range r.Sampled {
		if sampled {
			out[i] = rapid.Float32Range(-3, 3).Draw(t, "return")
		}
	}
	return out
}

func drawForm(t *rapid.T) model.Form {
	return rapid.SampledFrom([]model.Form{
		{Codec: "compact", Schema: json.RawMessage(`{}`)},
		{Codec: "compact", Schema: json.RawMessage(`{"type":"object","properties":{"b":{},"a":{}}}`), Stop: []string{"END", "\n"}},
		{Codec: "compact", Call: true, Tools: []model.FormTool{{Name: "add", Parameters: json.RawMessage(`{"type":"object"}`)}, {Name: "none"}}},
	}).Draw(t, "form")
}

func TestBatchesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		first, err := hf.EncodeBatch(b)
		require.NoError(t, err)
		second, err := hf.EncodeBatch(b)
		require.NoError(t, err)
		require.True(t, bytes.Equal(first, second))
		got, err := hf.DecodeBatch(first)
		require.NoError(t, err)
		again, err := hf.EncodeBatch(got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(first, again))
		if diff := cmp.Diff(b, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Digests of batches are on record and in versions, so the bytes of a batch must not
// change.
func TestABatchWithoutFormsHasTheBytesItAlwaysHad(t *testing.T) {
	t.Parallel()
	b, err := hf.DecodeBatch(encode(t, arrays(), batchJSON))
	require.NoError(t, err)
	file, err := hf.EncodeBatch(b)
	require.NoError(t, err)
	sum := sha256.Sum256(file)
	require.Equal(t, "b75f39b474ada94218277da897ff9aedb465df8656b8a1651012e61bd4ebc653", hex.EncodeToString(sum[:]))
}

// arrays returns the arrays of a batch of two rows, of 3 and 2 tokens.
func arrays() map[string]any {
	return map[string]any{
		"temperatures": []float64{1, 0.5}, "trajectories": []int32{0, 0}, "offsets": []int32{0, 3, 5},
		"tokens": []int32{1, 2, 3, 4, 5}, "calls": []int32{-1, 0, 0, -1, 1}, "logprobs": []float32{0, -1, -2, 0, -3},
		"advantages": []float32{0, 1, 1, 0, -1}, "sampled": []uint8{0, 1, 1, 0, 1},
	}
}

const batchJSON = `{"format":"fulgurite.batch/1","policy":"main","step":1,"vocab_size":50,"denominators":{"tokens":3,"sequences":2},
	"trajectories":[{"attempt":"demo/train-1/0/0/1","group":0,"reward":1,"advantage":0.5,"trained":3}],"later":"ignored"}`

func TestReturnsOfAnotherWriterAreRead(t *testing.T) {
	t.Parallel()
	all := arrays()
	all["returns"] = []float32{0, 0.5, 0.25, 0, -1}
	b, err := hf.DecodeBatch(encode(t, all, batchJSON))
	require.NoError(t, err)
	require.Equal(t, []float32{0, 0.5, 0.25}, b.Rows[0].Returns)
	require.Equal(t, []float32{0, -1}, b.Rows[1].Returns)
	for want, returns := range map[string]any{
		"5 tokens, 4 returns":             []float32{0, 1, 1, 0},
		"array returns holds []int32":     []int32{0, 1, 1, 0, 1},
		"row 1: token 0: return is 2":     []float32{0, 1, 1, 2, 1},
		"5 tokens, 0 returns":             []float32{},
		"row 0: token 1: return is +Inf,": []float32{0, float32(math.Inf(1)), 0, 0, 0},
	} {
		all["returns"] = returns
		_, err := hf.DecodeBatch(encode(t, all, batchJSON))
		require.ErrorContains(t, err, want)
	}
}

// maskedArrays returns the same arrays with a form on each row.
func maskedArrays() map[string]any {
	all := arrays()
	all["form_rows"], all["form_starts"], all["form_lengths"], all["forms"] = []int32{0, 1}, []int32{1, 1}, []int32{2, 1}, []int32{1, 0}
	return all
}

const maskedJSON = `{"format":"fulgurite.batch/2","policy":"main","step":1,"vocab_size":50,"denominators":{"tokens":3,"sequences":2},
	"trajectories":[{"attempt":"demo/train-1/0/0/1","group":0,"reward":1,"advantage":0.5,"trained":3}],
	"forms":[{"codec":"compact","call":true},{"codec":"compact","schema":{"type":"object"}}]}`

func TestFormsOfAnotherWriterAreRead(t *testing.T) {
	t.Parallel()
	b, err := hf.DecodeBatch(encode(t, maskedArrays(), maskedJSON))
	require.NoError(t, err)
	require.Equal(t, []model.BatchForm{{Start: 1, Length: 2, Form: model.Form{Codec: "compact", Schema: json.RawMessage(`{"type":"object"}`)}}}, b.Rows[0].Forms)
	require.Equal(t, []model.BatchForm{{Start: 1, Length: 1, Form: model.Form{Codec: "compact", Call: true}}}, b.Rows[1].Forms)
}

func TestInconsistentFormsAreRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(map[string]any){
		"array form_starts is absent":          func(a map[string]any) { delete(a, "form_starts") },
		"2 forms, but no array form_rows":      func(a map[string]any) { delete(a, "form_rows") },
		"2 form_rows, 2 form_starts, 1 form_l": func(a map[string]any) { a["form_lengths"] = []int32{2} },
		"form 1 is number 2 of 2":              func(a map[string]any) { a["forms"] = []int32{1, 2} },
		"form 0 is number -1 of 2":             func(a map[string]any) { a["forms"] = []int32{-1, 0} },
		"and of row 2 of 2":                    func(a map[string]any) { a["form_rows"] = []int32{0, 2} },
		"and of row -1 of 2":                   func(a map[string]any) { a["form_rows"] = []int32{-1, 1} },
		"row 0: form 0 is that of 3 tokens":    func(a map[string]any) { a["form_lengths"] = []int32{3, 1} },
		"format is":                            func(a map[string]any) { clearForms(a) },
	} {
		all := maskedArrays()
		change(all)
		_, err := hf.DecodeBatch(encode(t, all, maskedJSON))
		require.ErrorContains(t, err, want)
	}
	_, err := hf.DecodeBatch(encode(t, maskedArrays(), batchJSON))
	require.ErrorIs(t, err, hf.ErrFormat, "no list of forms")
}

func clearForms(a map[string]any) {
	for _, name := range []string{"form_rows", "form_starts", "form_lengths", "forms"} {
		a[name] = []int32{}
	}
}

func encode(t testing.TB, arrays map[string]any, text string) []byte {
	t.Helper()
	return encodeUnder(t, "batch", arrays, text)
}

// encodeUnder writes a file with text under key in its metadata.
func encodeUnder(t testing.TB, key string, arrays map[string]any, text string) []byte {
	t.Helper()
	var list []hf.Array
	for name, data := range arrays {
		switch data := data.(type) {
		case []float64:
			list = append(list, hf.NewArray(name, data))
		case []float32:
			list = append(list, hf.NewArray(name, data))
		case []int32:
			list = append(list, hf.NewArray(name, data))
		case []uint8:
			list = append(list, hf.NewArray(name, data))
		}
	}
	var b bytes.Buffer
	require.NoError(t, hf.WriteArrays(&b, list, map[string]string{key: text}))
	return b.Bytes()
}

func TestABatchOfAnotherWriterIsRead(t *testing.T) {
	t.Parallel()
	all := arrays()
	all["values"] = []float32{1} // what a later format may add
	b, err := hf.DecodeBatch(encode(t, all, batchJSON))
	require.NoError(t, err)
	require.Len(t, b.Rows, 2)
	require.Equal(t, model.BatchRow{
		Row: model.Row{Tokens: []int32{4, 5}, Temperature: 0.5}, Sampled: []bool{false, true}, Logprobs: []float32{0, -3},
		Advantages: []float32{0, -1}, Calls: []int32{-1, 1},
	}, b.Rows[1])
	require.Equal(t, model.BatchDenominators{Tokens: 3, Sequences: 2}, b.Denominators)
}

func TestInconsistentBatchFilesAreRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(map[string]any){
		"array tokens is absent":        func(a map[string]any) { delete(a, "tokens") },
		"array tokens holds []float32":  func(a map[string]any) { a["tokens"] = []float32{1, 2, 3, 4, 5} },
		"4 logprobs":                    func(a map[string]any) { a["logprobs"] = []float32{0, -1, -2, 0} },
		"0 offsets":                     func(a map[string]any) { a["offsets"] = []int32{} },
		"1 temperatures":                func(a map[string]any) { a["temperatures"] = []float64{1} },
		"offsets run from 1":            func(a map[string]any) { a["offsets"] = []int32{1, 3, 5} },
		"to 6, there are 5":             func(a map[string]any) { a["offsets"] = []int32{0, 3, 6} },
		"row 1: offsets 9 and 5":        func(a map[string]any) { a["offsets"] = []int32{0, 9, 5} },
		"row 0: offsets 0 and -1":       func(a map[string]any) { a["offsets"] = []int32{0, -1, 5} },
		"row 0 token 2: sampled is 2":   func(a map[string]any) { a["sampled"] = []uint8{0, 1, 2, 0, 1} },
		"row 1: trajectory 1 of 1":      func(a map[string]any) { a["trajectories"] = []int32{0, 1} },
		"row 1: token 0: id 99 is outs": func(a map[string]any) { a["tokens"] = []int32{1, 2, 3, 99, 5} },
	} {
		all := arrays()
		change(all)
		_, err := hf.DecodeBatch(encode(t, all, batchJSON))
		require.ErrorContains(t, err, want)
	}
	_, err := hf.DecodeBatch(encode(t, arrays(), "{"))
	require.ErrorIs(t, err, hf.ErrFormat)
	_, err = hf.DecodeBatch(nil)
	require.ErrorIs(t, err, hf.ErrFormat)
	_, err = hf.EncodeBatch(model.Batch{})
	require.ErrorIs(t, err, model.ErrBatch)
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add(encode(f, arrays(), batchJSON))
	f.Add(encode(f, maskedArrays(), maskedJSON))
	returned := arrays()
	returned["returns"] = []float32{0, 0.5, 0.25, 0, -1}
	f.Add(encode(f, returned, batchJSON))
	f.Fuzz(func(t *testing.T, file []byte) {
		b, err := hf.DecodeBatch(file)
		if err != nil {
			return
		}
		again, err := hf.EncodeBatch(b)
		require.NoError(t, err)
		same, err := hf.DecodeBatch(again)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(b, same, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()))
	})
}

func TestBatchesOfPoliciesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		policies := []string{"checker", "writer"}
		for i := range b.Rows {
			b.Rows[i].Policy = rapid.SampledFrom(policies).Draw(t, "policy")
		}
		b.Count()
		if len(b.Rows) > 0 {
			require.Equal(t, model.PoliciesBatchFormat, b.Format)
		}
		file, err := hf.EncodeBatch(b)
		require.NoError(t, err)
		got, err := hf.DecodeBatch(file)
		require.NoError(t, err)
		if diff := cmp.Diff(b, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		again, err := hf.EncodeBatch(got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(file, again))
		if len(b.Rows) == 0 {
			return
		}
		tokens := 0
		for _, p := range policies {
			part := got.Of(p)
			_, err := hf.EncodeBatch(part)
			require.NoError(t, err)
			tokens += part.Denominators.Tokens
		}
		require.Equal(t, b.Denominators.Tokens, tokens)
	})
}

const policiesJSON = `{"format":"fulgurite.batch/3","policy":"main","step":1,"vocab_size":50,"denominators":{"tokens":3,"sequences":2},"row_policies":ROWS,
	"trajectories":[{"attempt":"demo/train-1/0/0/1","group":0,"reward":1,"advantage":0.5,"trained":3}]}`

func TestThePoliciesOfRowsHaveToFitThem(t *testing.T) {
	t.Parallel()
	file := func(rows string) []byte { return encode(t, arrays(), strings.Replace(policiesJSON, "ROWS", rows, 1)) }
	b, err := hf.DecodeBatch(file(`["b","a"]`))
	require.NoError(t, err)
	require.Equal(t, []string{"b", "a"}, []string{b.Rows[0].Policy, b.Rows[1].Policy})
	for rows, want := range map[string]string{
		`["b"]`:         "1 row_policies for 2 rows",
		`["a","b","a"]`: "3 row_policies for 2 rows",
		`[]`:            "0 row_policies for 2 rows",
		`["a",""]`:      "row 1 names no policy, and others do",
		`null`:          `format is "fulgurite.batch/3", want "fulgurite.batch/1"`,
		`["",""]`:       `format is "fulgurite.batch/3", want "fulgurite.batch/1"`,
		`["a",1]`:       `metadata "batch"`,
	} {
		_, err := hf.DecodeBatch(file(rows))
		require.ErrorContains(t, err, want, rows)
	}
	_, err = hf.DecodeBatch(encode(t, arrays(), strings.Replace(batchJSON, `"step"`, `"row_policies":["a","b"],"step"`, 1)))
	require.ErrorContains(t, err, `format is "fulgurite.batch/1", want "fulgurite.batch/3"`)
}
