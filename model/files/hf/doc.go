// Package hf reads and writes model directories as Hugging Face tools do: a config.json,
// and tensors in safetensors files. A version written here loads in transformers, vLLM
// and SGLang as an ordinary Llama, Qwen2 or Qwen3 checkpoint.
//
// It also keeps a version's optimizer state and training batches in safetensors files, so
// that a trainer in any language needs one reader for all of them. docs/formats.md is the
// contract.
//
// The package downloads nothing and reads no tokenizer. It supports what
// model.Architecture can describe. It refuses other models with an error that names the
// setting: rotary embedding scaled in another way than Llama 3.1, sliding windows,
// mixtures of experts, quantized weights. A setting that was ignored would give a model
// that is almost right.
//
// Guarantees: equal inputs are written as equal bytes, so their SHA-256 can name them. A
// file that is truncated, inconsistent or hostile is refused with an error that wraps
// [ErrFormat], without a panic and without allocating more than a few times its size.
package hf
