package model_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// steps allows any first token, then the number one or two above the last token. It ends
// the reply at 9.
type steps struct{ last int32 }

func (s *steps) Allowed(set model.TokenSet) bool {
	if s.last < 0 {
		return false
	}
	set.Add(s.last + 1)
	set.Add(s.last + 2)
	return true
}

func (s *steps) Accept(token int32) bool {
	s.last = token
	return token == 9
}

var errStrange = errors.New("strange codec")

func inSteps(f model.Form) (model.Constraint, error) {
	if f.Codec != "steps" {
		return nil, errStrange
	}
	return &steps{-1}, nil
}

func stepForm(start, length int) model.BatchForm {
	return model.BatchForm{Start: start, Length: length, Form: model.Form{Codec: "steps", Schema: json.RawMessage(`{}`)}}
}

// formed returns the batch with forms on its last row, whose tokens are 6, 7, 8, 9.
func formed(forms ...model.BatchForm) model.Batch {
	b := batch()
	b.Rows[2].Forms = forms
	b.Count()
	return b
}

func TestRowsWithFormsMakeAnotherFormat(t *testing.T) {
	t.Parallel()
	b := formed(stepForm(1, 2), stepForm(3, 1))
	require.Equal(t, "fulgurite.batch/2", b.Format)
	require.NoError(t, b.Check())
	b.Format = model.BatchFormat
	require.ErrorContains(t, b.Check(), "format")
	require.Equal(t, model.BatchFormat, formed().Format)
	plain := formed()
	plain.Format = model.MaskedBatchFormat
	require.ErrorContains(t, plain.Check(), "format")
}

func TestWrongFormsAreFound(t *testing.T) {
	t.Parallel()
	only := stepForm(2, 1)
	only.Form = model.Form{Codec: "steps", Stop: []string{"x"}}
	for want, forms := range map[string][]model.BatchForm{
		"form 0 is that of 1 tokens from 0 on": {stepForm(0, 1)},
		"form 0 is that of 0 tokens":           {stepForm(2, 0)},
		"form 0 is that of 3 tokens from 2 on": {stepForm(2, 3)},
		"form 1 is that of 1 tokens from 2 on": {stepForm(2, 2), stepForm(2, 1)},
		"form 0 excludes no token":             {only},
	} {
		err := formed(forms...).Check()
		require.ErrorIs(t, err, model.ErrBatch)
		require.ErrorContains(t, err, "row 2")
		require.ErrorContains(t, err, want)
	}
}

func TestRestrictRebuildsWhatCouldBeChosen(t *testing.T) {
	t.Parallel()
	b := formed(stepForm(1, 2), stepForm(3, 1))
	require.NoError(t, b.Restrict(inSteps))
	require.Nil(t, b.Rows[0].Allowed)
	allowed := b.Rows[2].Allowed
	require.Len(t, allowed, 3)
	require.Nil(t, allowed[0], "the first token of a form that begins anyhow")
	require.Equal(t, []int32{8, 9}, allowed[1].AppendTokens(nil, 10))
	require.Nil(t, allowed[2], "another form begins anew")
	require.Equal(t, allowed, b.EngineRows()[2].Allowed)
	for _, row := range b.EngineRows()[:2] {
		require.Nil(t, row.Allowed)
	}
}

func TestEqualSetsAreKeptOnce(t *testing.T) {
	t.Parallel()
	b := formed(stepForm(1, 3))
	b.Rows[1] = b.Rows[2]
	b.Count()
	require.NoError(t, b.Restrict(inSteps))
	require.Equal(t, []int32{8, 9}, b.Rows[2].Allowed[1].AppendTokens(nil, 10))
	require.Equal(t, []int32{9}, b.Rows[2].Allowed[2].AppendTokens(nil, 10))
	require.Same(t, &b.Rows[1].Allowed[1][0], &b.Rows[2].Allowed[1][0])
	require.NotSame(t, &b.Rows[1].Allowed[1][0], &b.Rows[1].Allowed[2][0])
}

func TestFormsThatCannotBeRebuiltAreBadBatches(t *testing.T) {
	t.Parallel()
	strange := stepForm(1, 2)
	strange.Form.Codec = "klingon"
	jump := formed(stepForm(1, 3))
	jump.Rows[2].Tokens = []int32{6, 2, 3, 7}
	late := formed(stepForm(1, 3))
	late.Rows[2].Tokens = []int32{6, 8, 9, 9}
	for want, b := range map[string]model.Batch{
		"row 2 form 0: strange codec":                                     formed(strange),
		"row 2 form 0: token 3 is 7, which the form does not allow there": jump,
		"row 2 form 0: token 3 follows the end of the reply":              late,
	} {
		require.NoError(t, b.Check())
		err := b.Restrict(inSteps)
		require.ErrorIs(t, err, model.ErrBatch)
		require.ErrorContains(t, err, want)
	}
	b := formed(stepForm(1, 2))
	require.ErrorContains(t, b.Restrict(nil), "supports no forms")
	plain := formed()
	require.NoError(t, plain.Restrict(nil))
}

func TestASetHoldsWhatWasAdded(t *testing.T) {
	t.Parallel()
	for _, vocab := range []int{1, 63, 64, 65, 512} {
		set := model.NewTokenSet(vocab)
		var want []int32
		for token := int32(0); token < int32(vocab); token += 3 {
			set.Add(token)
			want = append(want, token)
		}
		require.Equal(t, want, set.AppendTokens(nil, vocab), fmt.Sprint(vocab))
		require.Equal(t, want[:1], set.AppendTokens(nil, 1))
		for token := range int32(vocab + 200) {
			require.Equal(t, int(token) < vocab && token%3 == 0, set.Has(token))
		}
	}
}
