// Package torch trains and samples with PyTorch. An embedded Python program holds the
// models; the objective stays in Go.
//
// # How it works
//
// An Engine starts the program (folder program) with a Python that the user has
// installed, with torch, transformers and peft in ranges of versions that the program
// checks. The engine and the program exchange frames over a pair of connected Unix
// sockets. A frame is a header in JSON and the bytes of arrays. Weights and moments are
// passed in files of a temporary directory, in the safetensors format.
//
// An update is a sequence of requests. Rows are cut into batches of whole rows, with at
// most Options.Tokens tokens each, and with no more tokens than the device can keep
// activations for: to compute activations again in the backward pass takes longer than to
// run more passes. For each batch, forward returns log-probabilities and entropies; the
// objective turns them into coefficients; backward adds up the gradient of Σ
// coefficient·logprob + Σ coefficient·entropy in float32. Logits are computed in
// portions, in the forward pass and again in the backward pass. Then norm returns the
// length of the gradient, and step changes the weights only if that length is finite. So
// every loss of package credit is trained here as on the other engines.
//
// An adapter (model.LoRA) is a PEFT adapter over a base that all adapters of an engine
// share. The program itself puts the rows of its trained tokens in the place of the
// base's: PEFT would copy the whole embedding in each pass. On a GPU the base and products are in bfloat16, while trained weights, their
// gradient and their moments are in float32. On a CPU everything is float32.
//
// # Models of other types
//
// A checkpoint whose architecture has Config (model.Files) may be any causal model that
// transformers supports. Its files are copied to the program, which reads and writes them
// by the rules of transformers and PEFT; this package reads none of their numbers. Logits
// come from the model's own code, applied to hidden states in portions. When the program
// opens a model, it checks that these logits, and those computed with the cache of keys
// and values, agree with a whole pass. If the logits in portions do not agree, it refuses
// the model; if the cache does not agree, it samples without a cache.
//
// # Several GPUs
//
// With Options.Ranks the program consists of several processes, each with a socket to
// this process, which starts, asks and ends them all. There is no launcher such as
// torchrun in between: it would hide which of them died, and could outlive this process.
// The ranks find each other by a file in their directory, and communicate by NCCL on GPUs
// and by gloo on CPUs. FSDP2 (fully_shard) keeps in each rank only its own rows of
// weights, base and moments; each rank has complete adapters and value heads. Rows of a
// batch are dealt to ranks by their lengths alone, and an idle rank computes two tokens
// whose results are not used. Gradients are summed in float32, and the norm is taken over
// all of them. Each rank saves the part that it holds, and this package joins the files,
// so a checkpoint does not depend on the number of ranks that made it or that continue
// from it. Only rank 0 samples, from its own complete weights.
//
// A rank that dies or hangs ends all ranks. A rank that has an error while others wait
// for it, such as too little memory, also ends all ranks, 10 seconds later.
//
// # Sampling
//
// With the verb decode, a decoder's goroutine asks for a burst of tokens of all current
// sequences. Between bursts sequences join and leave, constraints say which tokens may
// come next, and trainers and other decoders of the engine use the program. The program
// keeps keys and values ([slots, heads, positions, H] for each layer) and chooses tokens
// with the noise of model.GumbelNoise. So a reply depends only on the version, the prompt
// and the seed, to the extent that logits do not depend on the batch. On a CPU
// log-probabilities are within 1e-4 of Score's.
//
// # When the program dies
//
// Each request has a generation, which counts the program's starts, and a sequence
// number; a reply with other numbers is an error. A program that ends, or shows no
// progress for Options.Limit, is killed. Requests for models that it held then return
// model.ErrEngineLost with the last lines that the program wrote. A lost reply, also a
// reply to step, is never asked for again: the caller loads the parent version, for which
// the program is started again. The program ends when the socket is closed, so it doesn't
// outlive this process.
//
// # What it is not
//
// It is not deterministic in the sense of model.Engine: the sizes of batches, the number
// of ranks and the versions of PyTorch change the last bits; Fingerprint names the ranks
// and versions. All ranks run on one machine. The package works only on Unix.
package torch
