package gguf_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/files/gguf"
)

// lie returns the golden file with some bytes overwritten: skip bytes after the text
// after.
func lie(t *testing.T, after string, skip int, with ...byte) []byte {
	t.Helper()
	file, _ := load(t)
	at := bytes.Index(file, []byte(after))
	require.GreaterOrEqual(t, at, 0, after)
	copy(file[at+len(after)+skip:], with)
	return file
}

// twice returns a file in which a key occurs twice.
func twice(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := gguf.NewWriter(&b, gguf.Metadata{{Key: "k", Value: true}, {Key: "k", Value: true}}, nil)
	require.NoError(t, err)
	return b.Bytes()
}

func refused(file []byte) error {
	_, err := gguf.Open(bytes.NewReader(file), int64(len(file)))
	return err
}

func TestEveryTruncationIsRefused(t *testing.T) {
	t.Parallel()
	file, _ := load(t)
	f := open(t, file)
	last := f.Tensors[len(f.Tensors)-1]
	end := len(bytes.TrimRight(file, "\x00"))
	require.Positive(t, last.RowBytes())
	for n := 0; n < end; n += 1 + n/64 {
		require.ErrorIs(t, refused(file[:n]), gguf.ErrFormat, n)
	}
}

func TestLyingFilesAreRefusedByName(t *testing.T) {
	t.Parallel()
	huge := binary.LittleEndian.AppendUint64(nil, 1<<62)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"magic":          {lie(t, "GGUF", -4, 'G', 'G', 'M', 'L'), `want "GGUF"`},
		"version":        {lie(t, "GGUF", 0, 9), "version 9"},
		"big-endian":     {lie(t, "GGUF", 0, 0, 0, 0, 3), "big-endian"},
		"tensors":        {lie(t, "GGUF", 4, huge...), "4611686018427387904 tensors"},
		"pairs":          {lie(t, "GGUF", 12, huge...), "metadata pairs"},
		"value's type":   {lie(t, "llama.block_count", 0, 77), "value of type 77"},
		"text's length":  {lie(t, "general.architecture", 4, huge...), "cut off"},
		"array's length": {lie(t, "tokenizer.ggml.tokens", 8, huge...), "elements"},
		"array's type":   {lie(t, "tokenizer.ggml.tokens", 4, 9), "array of values of type 9"},
		"dimensions":     {lie(t, "Q4_0", 0, 200), `"Q4_0" has 200 dimensions`},
		"dimension":      {lie(t, "Q4_0", 4, huge...), `"Q4_0": dimension 0`},
		"zero":           {lie(t, "Q4_0", 4, make([]byte, 8)...), `dimension 0 is 0`},
		"half a block":   {lie(t, "Q4_0", 4, 16), "not whole blocks of Q4_0"},
		"more rows":      {lie(t, "Q6_K", 12, 0, 0, 1), "cut off"},
		"other type":     {lie(t, "Q4_0", 20, 16), `"Q4_0" is IQ2_XXS; F32, F16, BF16`},
		"nameless type":  {lie(t, "Q4_0", 20, 99), `"Q4_0" is type 99`},
		"offset":         {lie(t, "Q4_0", 24, huge...), `"Q4_0" has the offset`},
		"crooked offset": {lie(t, "Q4_0", 24, 1), "no multiple of 32"},
		"shared offset":  {lie(t, "Q5_0", 24, make([]byte, 8)...), "overlap"},
		"name twice":     {lie(t, "Q4_1", -4, []byte("Q4_0")...), "Q4_0 occurs twice"},
		"key twice":      {twice(t), `key "k" occurs twice`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, refused(c.file), c.want)
		})
	}
}

func FuzzOpen(f *testing.F) {
	var small bytes.Buffer
	w, err := gguf.NewWriter(&small, gguf.Metadata{{Key: "k", Value: []string{"a", "b"}}, {Key: "n", Value: uint32(3)}},
		[]gguf.Entry{{Name: "t", Shape: []int{2, 32}, Type: gguf.Q8_0}})
	if err != nil {
		f.Fatal(err)
	}
	if err := w.Write(make([]float32, 64)); err != nil {
		f.Fatal(err)
	}
	f.Add(small.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		opened, err := gguf.Open(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		for _, tensor := range opened.Tensors {
			raw, row := make([]byte, tensor.RowBytes()), make([]float32, tensor.Width())
			for r := range tensor.Rows() {
				if err := tensor.ReadRows(raw, r); err != nil {
					t.Fatal(err)
				}
				tensor.Decode(row, raw)
			}
		}
	})
}
