// Package hf reads and writes model directories as Hugging Face tools do: a
// config.json and tensors in safetensors files. A version written here loads in
// transformers, vLLM and SGLang as an ordinary Llama, Qwen2 or Qwen3 checkpoint.
//
// It also keeps a version's optimizer state and training batches in safetensors
// files, so that a trainer in any language needs one reader for all of them;
// docs/formats.md is the contract.
//
// It is not a model hub: it downloads nothing, and it reads no tokenizer. It
// supports what model.Architecture can say and refuses, by name, what it cannot
// (rotary embedding scaled otherwise than Llama 3.1 does, sliding windows, mixtures
// of experts, quantized weights), because a setting that is ignored gives a model
// that is almost right.
//
// Guarantees: equal inputs are written as equal bytes, so their SHA-256 can name them; a
// file that is truncated, inconsistent or hostile is refused with an error that wraps
// [ErrFormat], without a panic and without allocating more than a few times its size.
package hf
