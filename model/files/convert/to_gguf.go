package convert

import (
	"bufio"
	"fmt"
	"io"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/gguf"
)

// ToGGUF writes a model as a GGUF file that llama.cpp loads. Its matrices get type
// matrices: F32, F16, BF16 or Q8_0. A matrix whose rows are not whole blocks of Q8_0
// becomes F16, as in llama.cpp; norms and biases stay F32. name is the model's name in
// the file. ToGGUF refuses a critic, and a tokenizer for which llama.cpp has no name.
func ToGGUF(path, name string, a model.Architecture, w model.Weights, b dialog.Bundle, matrices gguf.Type) error {
	if err := a.Match(w); err != nil {
		return fmt.Errorf("export %s: %w", path, err)
	}
	kind, err := kindOf(a)
	if err != nil {
		return fmt.Errorf("export %s: %w", path, err)
	}
	text, err := writeVocabulary(b, a)
	if err != nil {
		return fmt.Errorf("export %s: %w", path, err)
	}
	metadata := append(append(general(name, kind, matrices), architecturePairs(kind, a)...), text...)
	var entries []gguf.Entry
	if a.RopeScaling != (model.RopeScaling{}) {
		entries = append(entries, gguf.Entry{Name: ropeFactors, Shape: []int{a.HeadDim / 2}, Type: gguf.F32})
	}
	scaled := len(entries)
	for _, t := range w {
		entries = append(entries, gguf.Entry{Name: nameOf(t.Name), Shape: t.Shape, Type: storedAs(t, matrices)})
	}
	return create(path, func(f io.Writer) error {
		buffered := bufio.NewWriterSize(f, batch)
		out, err := gguf.NewWriter(buffered, metadata, entries)
		if err != nil {
			return err
		}
		if scaled > 0 {
			err = out.Write(ropeDivisors(a))
		}
		for i := 0; i < len(w) && err == nil; i++ {
			dim := 0
			if interleaved(kind, w[i].Name) {
				dim = a.HeadDim
			}
			err = writeRows(out, w[i], dim)
		}
		if err == nil {
			err = out.Close()
		}
		if err != nil {
			return err
		}
		return buffered.Flush()
	})
}

// kindOf returns llama.cpp's name of the architecture.
func kindOf(a model.Architecture) (string, error) {
	switch {
	case a.ValueHead:
		return "", fmt.Errorf("%w: a critic is not a language model", ErrUnsupported)
	case a.QKVBias && a.QKNorm:
		return "", fmt.Errorf("%w: both qkv_bias and qk_norm", ErrUnsupported)
	case a.RopeScaling != model.RopeScaling{} && (a.QKVBias || a.QKNorm):
		return "", fmt.Errorf("%w: rope_scaling in a model that is not a llama", ErrUnsupported)
	case a.QKVBias:
		return qwen2, nil
	case a.QKNorm:
		return qwen3, nil
	}
	return llama, nil
}

// general returns the pairs that every file has. The numbers of file types come from
// llama.h.
func general(name, kind string, matrices gguf.Type) gguf.Metadata {
	fileType := map[gguf.Type]uint32{gguf.F32: 0, gguf.F16: 1, gguf.Q8_0: 7, gguf.BF16: 32}[matrices]
	return gguf.Metadata{
		{Key: architectureKey, Value: kind}, {Key: "general.type", Value: "model"}, {Key: "general.name", Value: name},
		{Key: "general.file_type", Value: fileType}, {Key: "general.quantization_version", Value: uint32(2)},
	}
}

func architecturePairs(kind string, a model.Architecture) gguf.Metadata {
	var m gguf.Metadata
	for _, p := range []struct {
		end string
		n   int
	}{
		{vocabSize, a.VocabSize}, {contextLength, a.MaxPositions}, {embeddingLength, a.HiddenSize}, {blockCount, a.Layers},
		{feedForward, a.FeedForward}, {heads, a.Heads}, {kvHeads, a.KVHeads}, {keyLength, a.HeadDim}, {valueLength, a.HeadDim},
		{ropeDimensions, a.HeadDim},
	} {
		m = append(m, gguf.Pair{Key: kind + p.end, Value: uint32(p.n)})
	}
	return append(m, gguf.Pair{Key: kind + ropeBase, Value: float32(a.RopeTheta)}, gguf.Pair{Key: kind + normEpsilon, Value: float32(a.NormEpsilon)})
}

func storedAs(t model.Tensor, matrices gguf.Type) gguf.Type {
	switch {
	case len(t.Shape) == 1:
		return gguf.F32
	case matrices == gguf.Q8_0 && t.Shape[1]%32 != 0:
		return gguf.F16
	}
	return matrices
}

// writeRows writes a tensor. If dim is not 0, it is the number of rows of a head, and the
// rows are put into llama.cpp's order.
func writeRows(out *gguf.Writer, t model.Tensor, dim int) error {
	width := t.Shape[len(t.Shape)-1]
	step := max(1, batch/4/width)
	if dim > 0 {
		step = 1
	}
	rows := t.Size() / width
	for first := 0; first < rows; first += step {
		from, n := first, min(step, rows-first)
		if dim > 0 {
			from = rowInOurs(first, dim)
		}
		if err := out.Write(t.Data[from*width : (from+n)*width]); err != nil {
			return err
		}
	}
	return nil
}
