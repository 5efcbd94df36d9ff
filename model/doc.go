// Package model describes policies independently of the engines that run them: the
// architecture, its weights as named tensors, the immutable versions that training makes,
// the rule that promotes a version, and the interfaces through which versions are sampled
// and updated. A [Critic] estimates the rewards that a policy's attempts will get. Its
// versions are those of a separate policy, numbered like the policy's.
//
// The package holds no arithmetic on tensors. model/engine/native, model/engine/gomlx and model/engine/torch
// do that, all behind [Engine]. Shapes are row-major. Names and layouts are those of
// Hugging Face checkpoints ([out, in] for linear layers), so a version's weights are an
// ordinary safetensors file.
package model
