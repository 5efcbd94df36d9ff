package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model"
)

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
