// Package convert converts models. From a GGUF file or a Hugging Face directory it makes
// a model directory with which a run can start. From one of our models it makes a GGUF
// file.
//
// It translates the meaning of llama.cpp's files: keys and names of tensors, the order of
// rows that its rotary embedding needs, the vocabulary and its patterns. Packages gguf
// and hf read and write the file formats. Package convert downloads nothing; package hub
// does that. It refuses architectures and tokenizers that the rest of this project cannot
// use, with an error that names the key which asks for them.
//
// Guarantees: numbers that are not quantized are copied to the bit and keep their type.
// Quantized numbers become the float32 numbers with which llama.cpp computes. Only a few
// rows are in memory at a time, whatever the model's size.
package convert
