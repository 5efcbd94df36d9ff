// Package torch trains and samples with PyTorch: a program in Python, which is embedded here, holds
// the models, and the objective stays in Go.
//
// # How it works
//
// An Engine starts the program (folder program) under a Python that a person has
// installed, with torch, transformers and peft in ranges of versions that the program
// checks. It speaks with it over a pair of connected Unix sockets, in frames: a header in JSON
// and the bytes of arrays. Weights and moments go through files of a temporary directory
// in the safetensors format.
//
// An update is a sequence of requests. Rows are cut into batches of whole rows, at most
// Options.Tokens each, and no more than the device can keep activations of: to compute those
// again in the backward pass takes longer than to run more passes. For each batch, forward gives log-probabilities and entropies; the
// objective turns them into coefficients; backward adds up the gradient of
// Σ coefficient·logprob + Σ coefficient·entropy in float32. Logits are computed in
// portions, forward and again backward. norm then tells the length of the gradient, and
// step changes the weights only if that is finite. So every loss of package credit is
// trained here as on the other engines.
//
// An adapter (model.LoRA) is one of PEFT over a base that all adapters of an engine share.
// On a GPU the base and products are in bfloat16, and what is trained, its gradient and
// its moments are in float32; on a CPU all is float32.
//
// # Models of other types
//
// A checkpoint whose architecture has Config (model.Files) is one of any causal model that
// transformers has. Its files are copied to the program, which reads and writes them by the
// rules of transformers and PEFT; no number of them is read here. Logits come from the model's
// own code, applied to hidden states in portions. As it opens a model the program checks that
// this, and its cache of keys and values, give what a whole pass gives; it refuses the model
// in the first case, and samples without a cache in the second.
//
// # Several GPUs
//
// With Options.Ranks the program is several processes, each with a socket to this one, which
// starts, asks and ends them all: there is no launcher such as torchrun between, which would hide
// which of them died and could outlive this process. They find each other by a file in their
// directory, and speak NCCL on GPUs and gloo on CPUs. FSDP2 (fully_shard) keeps in each the
// rows of weights, base and moments that are its own; adapters and value heads are whole in each. Rows of
// a batch are dealt to ranks by their lengths alone, an idle rank computes two tokens that count for nothing,
// gradients are summed in float32, and the norm is taken over all of them. A rank saves what it holds, and the
// files are put together here, so that a checkpoint is the same whatever number of ranks made it or
// goes on from it. Rank 0 alone samples, from whole weights of its own.
//
// A rank that dies or hangs ends all of them. One that has an error while others wait for it, such as too
// little memory, does so too, 10 seconds later.
//
// # Sampling
//
// A decoder's goroutine asks with the verb decode for a burst of tokens of all sequences that
// are under way; between bursts sequences join and leave, constraints say what may come next,
// and trainers and other decoders of the engine get their turn. The program keeps keys and
// values ([slots, heads, positions, H] for each layer) and chooses tokens with the noise of
// model.GumbelNoise, so that a reply depends on the version, the prompt and the seed as far as
// logits do not depend on the batch. On a CPU log-probabilities are within 1e-4 of Score's.
//
// # When the program dies
//
// Each request has a generation, which counts the program's starts, and a sequence number;
// another reply than the one to it is an error. A program that ends, or shows no progress for
// Options.Limit, is killed, and whatever was held in it answers with
// model.ErrEngineLost and the last lines that the program wrote. A lost reply, also that to step, is
// never asked for again: the caller loads the parent version, for which the program is
// started anew. The program ends when the socket does, so it doesn't outlive this process.
//
// # What it is not
//
// It is not deterministic in the sense of model.Engine: sizes of batches and the number of ranks
// move the last bits, and so do versions of PyTorch; Fingerprint names these. Ranks are
// in one machine.
// Only Unix has it.
package torch
