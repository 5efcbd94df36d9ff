// Package convert makes a model directory that a run can start from out of a model as
// people have it, a GGUF file or a Hugging Face directory, and a GGUF file out of a model
// of ours.
//
// It translates what llama.cpp's files mean: keys and names of tensors, the order of rows
// that its rotary embedding wants, the vocabulary and its patterns. The containers are
// those of packages gguf and hf. It downloads nothing: package hub does. Architectures
// and tokenizers that the rest of this project cannot use are refused, by the name of the
// key that asks for them.
//
// Guarantees: numbers that are not quantized are copied to the bit and in their type;
// quantized ones become the float32 that llama.cpp computes with; and memory stays that
// of a few rows, whatever the model's size.
package convert
