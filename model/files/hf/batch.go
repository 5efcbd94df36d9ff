package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model"
)

// batchKey is the metadata under which a batch's file holds its JSON.
const batchKey = "batch"

// returnsArray is an array that a batch's file has if a critic learns from it.
const returnsArray = "returns"

// EncodeBatch checks b and returns its file. The file holds the rows one after the other
// in flat arrays, where row i is numbers offsets[i] to offsets[i+1]. The rest is JSON in
// the metadata. Equal batches give equal bytes.
func EncodeBatch(b model.Batch) ([]byte, error) {
	if err := b.Check(); err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	forms, err := newForms(b.Rows)
	if err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	text, err := json.Marshal(batchText{b, forms.distinct, rowPolicies(b), b.Objective()})
	if err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	n := 0
	for _, r := range b.Rows {
		n += len(r.Tokens)
	}
	if n > math.MaxInt32 || len(b.Trajectories) > math.MaxInt32 {
		return nil, fmt.Errorf("encode batch: %w: %d tokens do not fit one batch", model.ErrBatch, n)
	}
	f := flat{
		offsets: []int32{0}, tokens: make([]int32, 0, n), calls: make([]int32, 0, n), sampled: make([]uint8, 0, n),
		logprobs: make([]float32, 0, n), advantages: make([]float32, 0, n),
		trajectories: make([]int32, 0, len(b.Rows)), temperatures: make([]float64, 0, len(b.Rows)),
	}
	for _, r := range b.Rows {
		f.append(r)
	}
	var out bytes.Buffer
	out.Grow(17*n + 16*len(b.Rows) + 2*len(text) + 1024)
	arrays := slices.Concat(f.arrays(), forms.arrays(), newPairs(b).arrays())
	if err := WriteArrays(&out, arrays, map[string]string{batchKey: string(text)}); err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	return out.Bytes(), nil
}

// DecodeBatch reads and checks a result of EncodeBatch. It ignores arrays that it does
// not know.
func DecodeBatch(file []byte) (model.Batch, error) {
	arrays, metadata, err := ReadArrays(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	var text batchText
	if err := json.Unmarshal([]byte(metadata[batchKey]), &text); err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w: metadata %q: %w", ErrFormat, batchKey, err)
	}
	f, err := newFlat(arrays)
	if err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	b := text.Batch
	if b.Rows, err = f.rows(); err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	if err := setRowPolicies(b, text.RowPolicies); err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	if err := readForms(arrays, text.Forms, b.Rows); err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	if err := readObjective(arrays, text.Objective, b.Rows); err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	if err := b.Check(); err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	return b, nil
}

// BatchFiles returns the digests of the files from which a result of EncodeBatch was made:
// a critic's values, a judge's scores and log-probabilities under version 0.
func BatchFiles(file []byte) (digests []string, err error) {
	h, err := readHeader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, fmt.Errorf("decode batch: %w", err)
	}
	var text batchText
	if err := json.Unmarshal([]byte(h.metadata[batchKey]), &text); err != nil {
		return nil, fmt.Errorf("decode batch: %w: metadata %q: %w", ErrFormat, batchKey, err)
	}
	for _, digest := range []string{text.Values, text.Judgments, text.Reference} {
		if digest != "" {
			digests = append(digests, digest)
		}
	}
	return digests, nil
}

// batchText is the JSON of a batch's file.
type batchText struct {
	model.Batch
	Forms []json.RawMessage `json:"forms,omitempty"` // each different form once
	// RowPolicies holds the policy of each row; nil if the run trains only one.
	RowPolicies []string `json:"row_policies,omitempty"`
	// Objective is that of all rows.
	Objective model.RowObjective `json:"objective,omitempty"`
}

func rowPolicies(b model.Batch) []string {
	if !b.SeveralPolicies() {
		return nil
	}
	names := make([]string, len(b.Rows))
	for i, r := range b.Rows {
		names[i] = r.Policy
	}
	return names
}

// setRowPolicies sets the policy of each row of a batch that was read.
func setRowPolicies(b model.Batch, names []string) error {
	if names == nil {
		return nil
	}
	if len(names) != len(b.Rows) {
		return fmt.Errorf("%w: %d row_policies for %d rows", ErrFormat, len(names), len(b.Rows))
	}
	for i := range b.Rows {
		b.Rows[i].Policy = names[i]
	}
	return nil
}

// flat holds the rows of a batch as arrays.
type flat struct {
	offsets, tokens, calls, trajectories []int32
	sampled                              []uint8
	logprobs, advantages                 []float32
	returns                              []float32 // nil without a critic
	temperatures                         []float64
}

func (f *flat) append(r model.BatchRow) {
	f.tokens = append(f.tokens, r.Tokens...)
	f.calls = append(f.calls, r.Calls...)
	f.logprobs = append(f.logprobs, r.Logprobs...)
	f.advantages = append(f.advantages, r.Advantages...)
	f.returns = append(f.returns, r.Returns...)
	for _, s := range r.Sampled {
		if s {
			f.sampled = append(f.sampled, 1)
		} else {
			f.sampled = append(f.sampled, 0)
		}
	}
	f.offsets = append(f.offsets, int32(len(f.tokens)))
	f.trajectories = append(f.trajectories, int32(r.Trajectory))
	f.temperatures = append(f.temperatures, r.Temperature)
}

func (f *flat) arrays() []Array {
	all := []Array{
		NewArray("temperatures", f.temperatures),
		NewArray("trajectories", f.trajectories),
		NewArray("offsets", f.offsets),
		NewArray("tokens", f.tokens),
		NewArray("calls", f.calls),
		NewArray("logprobs", f.logprobs),
		NewArray("advantages", f.advantages),
		NewArray("sampled", f.sampled),
	}
	if f.returns != nil {
		all = append(all, NewArray(returnsArray, f.returns))
	}
	return all
}

func newFlat(arrays []Array) (*flat, error) {
	var f flat
	err := errors.Join(
		readArray(arrays, "temperatures", &f.temperatures), readArray(arrays, "trajectories", &f.trajectories),
		readArray(arrays, "offsets", &f.offsets), readArray(arrays, "tokens", &f.tokens), readArray(arrays, "calls", &f.calls),
		readArray(arrays, "logprobs", &f.logprobs), readArray(arrays, "advantages", &f.advantages), readArray(arrays, "sampled", &f.sampled),
	)
	if err == nil && has(arrays, returnsArray) {
		err = readArray(arrays, returnsArray, &f.returns)
	}
	if err != nil {
		return nil, err
	}
	return &f, f.check()
}

func readArray[E Element](arrays []Array, name string, to *[]E) (err error) {
	*to, err = Find[E](arrays, name)
	return err
}

// check makes slicing by offsets safe. Batch.Check checks what the numbers mean.
func (f *flat) check() error {
	n, rows := len(f.tokens), len(f.offsets)-1
	if rows < 0 || len(f.trajectories) != rows || len(f.temperatures) != rows {
		return fmt.Errorf("%w: %d offsets, %d trajectories, %d temperatures", ErrFormat, len(f.offsets), len(f.trajectories), len(f.temperatures))
	}
	if len(f.calls) != n || len(f.logprobs) != n || len(f.advantages) != n || len(f.sampled) != n {
		return fmt.Errorf("%w: %d tokens, %d calls, %d logprobs, %d advantages, %d sampled",
			ErrFormat, n, len(f.calls), len(f.logprobs), len(f.advantages), len(f.sampled))
	}
	if f.returns != nil && len(f.returns) != n {
		return fmt.Errorf("%w: %d tokens, %d returns", ErrFormat, n, len(f.returns))
	}
	if f.offsets[0] != 0 || int(f.offsets[rows]) != n {
		return fmt.Errorf("%w: offsets run from %d to %d, there are %d tokens", ErrFormat, f.offsets[0], f.offsets[rows], n)
	}
	for i := range rows {
		if f.offsets[i] > f.offsets[i+1] {
			return fmt.Errorf("%w: row %d: offsets %d and %d", ErrFormat, i, f.offsets[i], f.offsets[i+1])
		}
	}
	return nil
}

func (f *flat) rows() ([]model.BatchRow, error) {
	rows := make([]model.BatchRow, len(f.offsets)-1)
	for i := range rows {
		from, to := f.offsets[i], f.offsets[i+1]
		r := model.BatchRow{
			Row:     model.Row{Tokens: f.tokens[from:to:to], Temperature: f.temperatures[i]},
			Sampled: make([]bool, to-from), Logprobs: f.logprobs[from:to:to], Advantages: f.advantages[from:to:to],
			Calls: f.calls[from:to:to], Trajectory: int(f.trajectories[i]),
		}
		if f.returns != nil {
			r.Returns = f.returns[from:to:to]
		}
		for t, s := range f.sampled[from:to] {
			if s > 1 {
				return nil, fmt.Errorf("%w: row %d token %d: sampled is %d", ErrFormat, i, t, s)
			}
			r.Sampled[t] = s == 1
		}
		rows[i] = r
	}
	return rows, nil
}

// formArray is an array that a batch's file has if one of its rows has forms. Entry k of
// this array and of the three related arrays describes one completion and its form.
const formArray = "form_rows"

// forms holds the forms of all rows of a batch; equal forms are kept once.
type forms struct {
	distinct                     []json.RawMessage
	rows, starts, lengths, which []int32
}

func newForms(rows []model.BatchRow) (forms, error) {
	var f forms
	known := map[string]int{}
	for i, r := range rows {
		for _, x := range r.Forms {
			text, err := json.Marshal(x.Form)
			if err != nil {
				return forms{}, fmt.Errorf("row %d: form of token %d: %w", i, x.Start, err)
			}
			which, ok := known[string(text)]
			if !ok {
				which = len(f.distinct)
				known[string(text)], f.distinct = which, append(f.distinct, text)
			}
			f.rows, f.which = append(f.rows, int32(i)), append(f.which, int32(which))
			f.starts, f.lengths = append(f.starts, int32(x.Start)), append(f.lengths, int32(x.Length))
		}
	}
	return f, nil
}

// arrays returns the arrays for the file, and none if there are no forms.
func (f forms) arrays() []Array {
	if len(f.rows) == 0 {
		return nil
	}
	return []Array{
		NewArray(formArray, f.rows), NewArray("form_starts", f.starts), NewArray("form_lengths", f.lengths), NewArray("forms", f.which),
	}
}

// readForms sets the forms of rows. Batch.Check judges what they mean.
func readForms(arrays []Array, distinct []json.RawMessage, rows []model.BatchRow) error {
	if !has(arrays, formArray) {
		if len(distinct) > 0 {
			return fmt.Errorf("%w: %d forms, but no array %s", ErrFormat, len(distinct), formArray)
		}
		return nil
	}
	var f forms
	if err := errors.Join(readArray(arrays, formArray, &f.rows), readArray(arrays, "form_starts", &f.starts),
		readArray(arrays, "form_lengths", &f.lengths), readArray(arrays, "forms", &f.which)); err != nil {
		return err
	}
	n := len(f.rows)
	if len(f.starts) != n || len(f.lengths) != n || len(f.which) != n {
		return fmt.Errorf("%w: %d form_rows, %d form_starts, %d form_lengths, %d forms", ErrFormat, n, len(f.starts), len(f.lengths), len(f.which))
	}
	for k := range n {
		row, which := int(f.rows[k]), int(f.which[k])
		if row < 0 || row >= len(rows) || which < 0 || which >= len(distinct) {
			return fmt.Errorf("%w: form %d is number %d of %d and of row %d of %d", ErrFormat, k, which, len(distinct), row, len(rows))
		}
		form := model.BatchForm{Start: int(f.starts[k]), Length: int(f.lengths[k])}
		if err := json.Unmarshal(distinct[which], &form.Form); err != nil {
			return fmt.Errorf("%w: form %d: %w", ErrFormat, which, err)
		}
		rows[row].Forms = append(rows[row].Forms, form)
	}
	return nil
}

// pairsArray is an array that a batch's file has if its rows are pairs: the number of the
// pair of each row. chosenArray says which of the two rows was chosen.
const (
	pairsArray  = "pairs"
	chosenArray = "chosen"
)

// pairs has the pairs of rows as arrays; nil if the objective has none.
type pairs struct {
	numbers []int32
	chosen  []uint8
}

func newPairs(b model.Batch) pairs {
	var p pairs
	if b.Objective() != model.Preference {
		return p
	}
	for _, r := range b.Rows {
		p.numbers, p.chosen = append(p.numbers, int32(r.Pair)), append(p.chosen, 0)
		if r.Chosen {
			p.chosen[len(p.chosen)-1] = 1
		}
	}
	return p
}

func (p pairs) arrays() []Array {
	if p.numbers == nil {
		return nil
	}
	return []Array{NewArray(pairsArray, p.numbers), NewArray(chosenArray, p.chosen)}
}

// readObjective sets the objective of rows, and their pairs if it has some. Batch.Check
// judges what they mean.
func readObjective(arrays []Array, objective model.RowObjective, rows []model.BatchRow) error {
	for i := range rows {
		rows[i].Objective = objective
	}
	if objective != model.Preference {
		return nil
	}
	var p pairs
	if err := errors.Join(readArray(arrays, pairsArray, &p.numbers), readArray(arrays, chosenArray, &p.chosen)); err != nil {
		return err
	}
	if len(p.numbers) != len(rows) || len(p.chosen) != len(rows) {
		return fmt.Errorf("%w: %d rows, %d pairs, %d chosen", ErrFormat, len(rows), len(p.numbers), len(p.chosen))
	}
	for i := range rows {
		if p.chosen[i] > 1 {
			return fmt.Errorf("%w: row %d: chosen is %d", ErrFormat, i, p.chosen[i])
		}
		rows[i].Pair, rows[i].Chosen = int(p.numbers[i]), p.chosen[i] == 1
	}
	return nil
}

func has(arrays []Array, name string) bool {
	for _, a := range arrays {
		if a.Name == name {
			return true
		}
	}
	return false
}

// scoresKey is the metadata under which a file of scores holds its JSON.
const scoresKey = "scores"

// scoresText is the JSON under scoresKey.
type scoresText struct {
	Format string `json:"format"`
	model.Scores
}

// EncodeScores checks s and returns its file. Equal scores give equal bytes.
func EncodeScores(s model.Scores) ([]byte, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("encode scores: %w", err)
	}
	text, err := json.Marshal(scoresText{model.ScoresFormat, s})
	if err != nil {
		return nil, fmt.Errorf("encode scores: %w", err)
	}
	var out bytes.Buffer
	arrays := []Array{NewArray("logprobs", s.Logprobs), NewArray("entropies", s.Entropies)}
	if err := WriteArrays(&out, arrays, map[string]string{scoresKey: string(text)}); err != nil {
		return nil, fmt.Errorf("encode scores: %w", err)
	}
	return out.Bytes(), nil
}

// DecodeScores reads and checks a result of EncodeScores. It ignores arrays that it does
// not know.
func DecodeScores(file []byte) (model.Scores, error) {
	s, err := decodeScores(file)
	if err != nil {
		return model.Scores{}, fmt.Errorf("decode scores: %w", err)
	}
	return s, nil
}

func decodeScores(file []byte) (model.Scores, error) {
	arrays, metadata, err := ReadArrays(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return model.Scores{}, err
	}
	var text scoresText
	if err := json.Unmarshal([]byte(metadata[scoresKey]), &text); err != nil {
		return model.Scores{}, fmt.Errorf("%w: metadata %q: %w", ErrFormat, scoresKey, err)
	}
	if text.Format != model.ScoresFormat {
		return model.Scores{}, fmt.Errorf("%w: format is %q, want %q", ErrFormat, text.Format, model.ScoresFormat)
	}
	s := text.Scores
	if s.Logprobs, err = Find[float32](arrays, "logprobs"); err != nil {
		return model.Scores{}, err
	}
	if s.Entropies, err = Find[float32](arrays, "entropies"); err != nil {
		return model.Scores{}, err
	}
	return s, s.Check()
}

// valuesKey is the metadata under which a file of values holds its JSON.
const valuesKey = "values"

// valuesText is the JSON under valuesKey.
type valuesText struct {
	Format string `json:"format"`
	model.Values
}

// EncodeValues checks v and returns its file: the values one after the other, the number
// of calls of each trajectory, and the number of tokens of each call. Equal values give
// equal bytes.
func EncodeValues(v model.Values) ([]byte, error) {
	if err := v.Check(); err != nil {
		return nil, fmt.Errorf("encode values: %w", err)
	}
	text, err := json.Marshal(valuesText{model.ValuesFormat, v})
	if err != nil {
		return nil, fmt.Errorf("encode values: %w", err)
	}
	calls, tokens, values := make([]int32, 0, len(v.Calls)), []int32{}, []float32{}
	for _, t := range v.Calls {
		calls = append(calls, int32(len(t)))
		for _, c := range t {
			tokens, values = append(tokens, int32(len(c))), append(values, c...)
		}
	}
	if max(len(calls), len(tokens), len(values)) > math.MaxInt32 {
		return nil, fmt.Errorf("encode values: %w: %d do not fit one file", model.ErrValues, len(values))
	}
	var out bytes.Buffer
	arrays := []Array{NewArray("calls", calls), NewArray("tokens", tokens), NewArray("values", values)}
	if err := WriteArrays(&out, arrays, map[string]string{valuesKey: string(text)}); err != nil {
		return nil, fmt.Errorf("encode values: %w", err)
	}
	return out.Bytes(), nil
}

// DecodeValues reads and checks a result of EncodeValues. It ignores arrays that it does
// not know.
func DecodeValues(file []byte) (model.Values, error) {
	v, err := decodeValues(file)
	if err != nil {
		return model.Values{}, fmt.Errorf("decode values: %w", err)
	}
	return v, nil
}

func decodeValues(file []byte) (model.Values, error) {
	arrays, metadata, err := ReadArrays(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return model.Values{}, err
	}
	var text valuesText
	if err := json.Unmarshal([]byte(metadata[valuesKey]), &text); err != nil {
		return model.Values{}, fmt.Errorf("%w: metadata %q: %w", ErrFormat, valuesKey, err)
	}
	if text.Format != model.ValuesFormat {
		return model.Values{}, fmt.Errorf("%w: format is %q, want %q", ErrFormat, text.Format, model.ValuesFormat)
	}
	counts, err := Find[int32](arrays, "calls")
	if err != nil {
		return model.Values{}, err
	}
	lengths, err := Find[int32](arrays, "tokens")
	if err != nil {
		return model.Values{}, err
	}
	values, err := Find[float32](arrays, "values")
	if err != nil {
		return model.Values{}, err
	}
	calls, err := split("tokens", values, lengths)
	if err != nil {
		return model.Values{}, err
	}
	v := text.Values
	if v.Calls, err = split("calls", calls, counts); err != nil {
		return model.Values{}, err
	}
	return v, v.Check()
}

// split cuts all into pieces of the given lengths. Errors use name, the array that holds
// the lengths.
func split[E any](name string, all []E, lengths []int32) ([][]E, error) {
	out := make([][]E, len(lengths))
	at := 0
	for i, n := range lengths {
		if n < 0 || int(n) > len(all)-at {
			return nil, fmt.Errorf("%w: %s: number %d is %d, and %d are left", ErrFormat, name, i, n, len(all)-at)
		}
		out[i] = all[at : at+int(n) : at+int(n)]
		at += int(n)
	}
	if at != len(all) {
		return nil, fmt.Errorf("%w: %s: the numbers add up to %d of %d", ErrFormat, name, at, len(all))
	}
	return out, nil
}
