package hf_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// file lays out a safetensors file by hand, so that the reader is not tested
// against the writer alone.
func file(header string, data ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func read(b []byte) (model.Weights, map[string]string, error) {
	return hf.ReadSafetensors(bytes.NewReader(b), int64(len(b)))
}

func TestReaderUnderstandsAFileMadeByHand(t *testing.T) {
	t.Parallel()
	w, metadata, err := read(file(
		`{"b":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]},"__metadata__":{"format":"pt"},`+
			`"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"c":{"dtype":"F16","shape":[3],"data_offsets":[8,14]}}   `,
		0, 0, 0x80, 0x3f, // 1
		0x80, 0xbf, 0x49, 0x40, // -1, 3.140625
		0x00, 0x3c, 0x01, 0x00, 0x00, 0xfc)) // 1, 2^-24, -Inf
	require.NoError(t, err)
	require.Equal(t, map[string]string{"format": "pt"}, metadata)
	require.Equal(t, model.Weights{
		{Name: "a", Shape: []int{1, 1}, Data: []float32{1}},
		{Name: "b", Shape: []int{2}, Data: []float32{-1, 3.140625}},
		{Name: "c", Shape: []int{3}, Data: []float32{1, 0x1p-24, float32(math.Inf(-1))}},
	}, w)
}

func TestWriterLaysOutTheDocumentedBytes(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, hf.WriteArrays(&b, []hf.Array{
		hf.NewArray("small", []uint8{7}), {Name: "wide", Shape: []int{1, 1}, Data: []float64{2}},
	}, map[string]string{"z": "<\"", "a": ""}))
	header := `{"__metadata__":{"a":"","z":"\u003c\""},"wide":{"dtype":"F64","shape":[1,1],"data_offsets":[0,8]},` +
		`"small":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}}`
	header += fmt.Sprintf("%*s", (8-len(header)%8)%8, "")
	require.Equal(t, file(header, 0, 0, 0, 0, 0, 0, 0, 0x40, 7), b.Bytes())
}

func TestHalfPrecisionIsWidenedExactly(t *testing.T) {
	t.Parallel()
	for h, want := range map[uint16]float32{
		0x0000: 0, 0x8000: float32(math.Copysign(0, -1)), 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0400: 0x1p-14,
		0x03ff: 1023 * 0x1p-24, 0x3555: 0.333251953125, 0x7c00: float32(math.Inf(1)),
	} {
		w, _, err := read(file(`{"h":{"dtype":"F16","shape":[],"data_offsets":[0,2]}}`, byte(h), byte(h>>8)))
		require.NoError(t, err)
		require.Equal(t, math.Float32bits(want), math.Float32bits(w[0].Data[0]), "%04x", h)
	}
	w, _, err := read(file(`{"h":{"dtype":"F16","shape":[],"data_offsets":[0,2]}}`, 0x01, 0x7e))
	require.NoError(t, err)
	require.True(t, math.IsNaN(float64(w[0].Data[0])))
}

func TestInconsistentFilesAreRefusedByName(t *testing.T) {
	t.Parallel()
	good := `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":             {nil, "too few"},
		"length alone":      {file(good)[:8], "header of 54 bytes"},
		"huge header":       {binary.LittleEndian.AppendUint64(nil, math.MaxUint64), "header of"},
		"no object":         {file(`[]`), "not a JSON object"},
		"cut object":        {file(`{"a":`), `"a"`},
		"unclosed object":   {file(`{`), "unexpected end"},
		"trailing text":     {file(good+"{}", 0, 0, 0, 0), "follows"},
		"truncated data":    {file(good, 0, 0, 0), "bytes 0 to 4 of 3"},
		"data left over":    {file(good, 0, 0, 0, 0, 0), "tensors have 4 bytes, the file has 5"},
		"name twice":        {file(`{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`), "twice"},
		"unknown type":      {file(`{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}`, make([]byte, 8)...), `"I64" is not supported`},
		"unknown field":     {file(`{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"x":1}}`), "unknown field"},
		"no shape":          {file(`{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 0), "shape"},
		"one offset":        {file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}}`), "data_offsets"},
		"negative shape":    {file(`{"a":{"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]}}`, 0, 0, 0, 0), "shape"},
		"negative offset":   {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`), "bytes -4 to 0"},
		"offsets reversed":  {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 0, 0, 0, 0), "bytes 4 to 0"},
		"offset overflows":  {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,9223372036854775808]}}`, 0, 0, 0, 0), `"a"`},
		"shape overflows":   {file(`{"a":{"dtype":"F32","shape":[2147483647,2147483647,4],"data_offsets":[0,4]}}`, 0, 0, 0, 0), "shape"},
		"shape wraps to 4":  {file(`{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`), "shape"},
		"shape too small":   {file(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,8]}}`, make([]byte, 8)...), "in 8 bytes"},
		"overlap":           {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 0, 0, 0), `"b" begins at byte 1`},
		"gap":               {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 0, 0, 0), `"b" begins at byte 2`},
		"metadata no map":   {file(`{"__metadata__":{"a":1}}`), "__metadata__"},
		"integers in model": {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 0), "tensor a holds []uint8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := read(c.file)
			require.ErrorIs(t, err, hf.ErrFormat)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestWriterRefusesWhatTheReaderWould(t *testing.T) {
	t.Parallel()
	for name, arrays := range map[string][]hf.Array{
		"name twice":     {hf.NewArray("a", []uint8{}), hf.NewArray("a", []uint8{})},
		"reserved name":  {hf.NewArray("__metadata__", []uint8{})},
		"not UTF-8":      {hf.NewArray("\xff", []uint8{})},
		"length differs": {{Name: "a", Shape: []int{2}, Data: []float32{1}}},
		"negative shape": {{Name: "a", Shape: []int{-1, -1}, Data: []float32{1}}},
		"other numbers":  {{Name: "a", Shape: []int{1}, Data: []int{1}}},
		"no numbers":     {{Name: "a"}},
	} {
		require.ErrorIs(t, hf.WriteArrays(&bytes.Buffer{}, arrays, nil), hf.ErrFormat, name)
	}
	require.ErrorIs(t, hf.WriteArrays(&bytes.Buffer{}, nil, map[string]string{"a": "\xff"}), hf.ErrFormat)
}

// drawArrays returns arrays of all types, some of them empty.
func drawArrays(t *rapid.T) []hf.Array {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zé"\\.]{1,6}`), 0, 6, rapid.ID).Draw(t, "names")
	arrays := make([]hf.Array, 0, len(names))
	for _, name := range names {
		rows, columns := rapid.IntRange(0, 5).Draw(t, "rows"), rapid.SampledFrom([]int{0, 1, 3, 7}).Draw(t, "columns")
		n, a := rows*columns, hf.Array{Name: name, Shape: []int{rows, columns}}
		seed := rapid.Uint32().Draw(t, "seed")
		switch rapid.IntRange(0, 3).Draw(t, "type") {
		case 0:
			a.Data = fill(n, func(i int) float32 { return float32(i) * float32(seed) })
		case 1:
			a.Data = fill(n, func(i int) float64 { return float64(i) / (float64(seed) + 1) })
		case 2:
			a.Data = fill(n, func(i int) int32 { return int32(seed) - int32(i) })
		case 3:
			a.Data = fill(n, func(i int) uint8 { return uint8(seed) + uint8(i) })
		}
		arrays = append(arrays, a)
	}
	return arrays
}

func fill[E hf.Element](n int, f func(int) E) []E {
	out := make([]E, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		arrays := drawArrays(t)
		metadata := rapid.MapOfN(rapid.StringMatching(`[a-z]{1,3}`), rapid.String(), 1, 3).Draw(t, "metadata")
		var first, second bytes.Buffer
		require.NoError(t, hf.WriteArrays(&first, arrays, metadata))
		require.NoError(t, hf.WriteArrays(&second, arrays, metadata))
		require.True(t, bytes.Equal(first.Bytes(), second.Bytes()))

		got, gotMetadata, err := hf.ReadArrays(bytes.NewReader(first.Bytes()), int64(first.Len()))
		require.NoError(t, err)
		require.Equal(t, metadata, gotMetadata)
		byName := map[string]hf.Array{}
		for _, a := range got {
			byName[a.Name] = a
		}
		require.Len(t, byName, len(arrays))
		for _, a := range arrays {
			if diff := cmp.Diff(a, byName[a.Name]); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

func TestArraysLongerThanABufferAreRead(t *testing.T) {
	t.Parallel()
	want := []hf.Array{
		hf.NewArray("f64", fill(40_001, func(i int) float64 { return float64(i) / 3 })),
		hf.NewArray("f32", fill(70_001, func(i int) float32 { return float32(i) / 3 })),
		hf.NewArray("u8", fill(300_001, func(i int) uint8 { return uint8(i % 251) })),
	}
	var b bytes.Buffer
	require.NoError(t, hf.WriteArrays(&b, want, nil))
	got, _, err := hf.ReadArrays(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(t, err)
	require.True(t, cmp.Equal(want, got))

	// More BF16 numbers than a buffer holds, two bytes for each.
	data := make([]byte, 2*140_001)
	data[len(data)-1] = 0x40 // 2, the last
	w, _, err := read(file(`{"h":{"dtype":"BF16","shape":[140001],"data_offsets":[0,280002]}}`, data...))
	require.NoError(t, err)
	require.InDelta(t, 2, w[0].Data[140_000], 0)
	require.Zero(t, w[0].Data[139_999])
}

func TestWeightsKeepTheirOrderAndBits(t *testing.T) {
	t.Parallel()
	a := model.Tiny(20)
	w := a.Init(3)
	w[0].Data[0] = math.Float32frombits(0x7fc00123) // a NaN's payload is weights too
	var b, again bytes.Buffer
	require.NoError(t, hf.WriteSafetensors(&b, w, nil))
	got, _, err := read(b.Bytes())
	require.NoError(t, err)
	require.NoError(t, a.Match(got))
	require.NoError(t, hf.WriteSafetensors(&again, got, nil))
	require.True(t, bytes.Equal(b.Bytes(), again.Bytes()))
}

func FuzzReadArrays(f *testing.F) {
	f.Add(file(`{}`))
	f.Add(file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 1, 2, 3, 4))
	f.Add(file(`{"a":{"dtype":"BF16","shape":[0,3],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1, 2))
	f.Add(file(`{"__metadata__":{"k":"v"},"a":{"dtype":"F64","shape":[9223372036854775807,2],"data_offsets":[0,16]}}`, make([]byte, 16)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		arrays, metadata, err := hf.ReadArrays(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			require.ErrorIs(t, err, hf.ErrFormat)
			return
		}
		// What was accepted can be written, and reads the same.
		var out bytes.Buffer
		require.NoError(t, hf.WriteArrays(&out, arrays, metadata))
		again, _, err := hf.ReadArrays(bytes.NewReader(out.Bytes()), int64(out.Len()))
		require.NoError(t, err)
		require.Len(t, again, len(arrays))
	})
}
