package hf_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

func TestValuesRoundTrip(t *testing.T) {
	t.Parallel()
	call := rapid.SliceOfN(rapid.Float32Range(-9, 9), 0, 5)
	trajectories := rapid.SliceOfN(rapid.SliceOfN(call, 0, 3), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		v := model.Values{Policy: "critic", Version: rapid.IntRange(0, 9).Draw(t, "version"), Calls: trajectories.Draw(t, "values")}
		first, err := hf.EncodeValues(v)
		require.NoError(t, err)
		got, err := hf.DecodeValues(first)
		require.NoError(t, err)
		if diff := cmp.Diff(v, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		again, err := hf.EncodeValues(got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(first, again))
	})
}

// valueArrays returns the arrays of two trajectories: one with two calls, of 2 tokens and
// 1 token, and one without a call.
func valueArrays() map[string]any {
	return map[string]any{"calls": []int32{2, 0}, "tokens": []int32{2, 1}, "values": []float32{0.5, 1, -1}}
}

const valuesJSON = `{"format":"fulgurite.values/1","policy":"critic","version":4,"later":"ignored"}`

func TestValuesOfAnotherWriterAreRead(t *testing.T) {
	t.Parallel()
	v, err := hf.DecodeValues(encodeUnder(t, "values", valueArrays(), valuesJSON))
	require.NoError(t, err)
	require.Equal(t, model.Values{Policy: "critic", Version: 4, Calls: [][][]float32{{{0.5, 1}, {-1}}, {}}}, v)
}

func TestInconsistentValuesAreRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(map[string]any){
		"array calls is absent":                     func(a map[string]any) { delete(a, "calls") },
		"array tokens is absent":                    func(a map[string]any) { delete(a, "tokens") },
		"array values holds []int32":                func(a map[string]any) { a["values"] = []int32{1, 2, 3} },
		"tokens: number 1 is 2, and 1 are left":     func(a map[string]any) { a["tokens"] = []int32{2, 2} },
		"tokens: number 0 is -1":                    func(a map[string]any) { a["tokens"] = []int32{-1, 4} },
		"tokens: the numbers add up to 2 of 3":      func(a map[string]any) { a["tokens"] = []int32{2, 0} },
		"calls: number 0 is 3, and 2 are left":      func(a map[string]any) { a["calls"] = []int32{3} },
		"calls: the numbers add up to 1 of 2":       func(a map[string]any) { a["calls"] = []int32{1, 0} },
		"trajectory 0 call 1 token 0 is +Inf":       func(a map[string]any) { a["values"] = []float32{0, 0, float32(math.Inf(1))} },
		"calls: number 1 is 2147483647, and 0 are ": func(a map[string]any) { a["calls"] = []int32{2, math.MaxInt32} },
	} {
		all := valueArrays()
		change(all)
		_, err := hf.DecodeValues(encodeUnder(t, "values", all, valuesJSON))
		require.ErrorContains(t, err, want)
	}
	for _, text := range []string{"{", `{"format":"fulgurite.values/2","policy":"critic"}`} {
		_, err := hf.DecodeValues(encodeUnder(t, "values", valueArrays(), text))
		require.ErrorIs(t, err, hf.ErrFormat)
	}
	_, err := hf.DecodeValues(encode(t, arrays(), batchJSON))
	require.ErrorIs(t, err, hf.ErrFormat, "a batch holds no values")
	_, err = hf.DecodeValues(nil)
	require.ErrorIs(t, err, hf.ErrFormat)
	_, err = hf.EncodeValues(model.Values{})
	require.ErrorIs(t, err, model.ErrValues)
}

func FuzzDecodeValues(f *testing.F) {
	f.Add(encodeUnder(f, "values", valueArrays(), valuesJSON))
	f.Fuzz(func(t *testing.T, file []byte) {
		v, err := hf.DecodeValues(file)
		if err != nil {
			return
		}
		again, err := hf.EncodeValues(v)
		require.NoError(t, err)
		same, err := hf.DecodeValues(again)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(v, same, cmpopts.EquateEmpty()))
	})
}
