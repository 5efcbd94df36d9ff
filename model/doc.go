// Package model describes policies independently of the engines that run them: the
// architecture, its weights as named tensors, the immutable versions that training makes,
// the rule that promotes a version, and the interfaces through which versions are sampled
// and updated. A [Critic] estimates the rewards that a policy's attempts will get; it is
// versioned beside the policy, as a policy of its own.
//
// It holds no arithmetic on tensors; model/native, model/gomlx and model/torch do that, all
// behind [Engine]. Shapes are row-major, names and layouts are those of Hugging
// Face checkpoints ([out, in] for linear layers), so a version's weights are an
// ordinary safetensors file.
package model
