// Package remote is a sampler behind HTTP, both ends of it: [Server] makes a
// sampler of this process reachable, [Client] implements [model.Sampler] over
// one of another process.
//
// The protocol speaks token ids, never text, so that what is recorded is what
// was sampled; docs/formats.md describes it. It carries everything to the bit:
// seeds are strings of their 64 bits, floating-point numbers are written with as
// many digits as it takes to read the same number back.
//
// It neither chooses between samplers nor repeats requests nor keeps state: that is up to
// the caller and to the gateway's journal.
//
// Guarantees:
//
//   - Errors that mean something to the caller (model.ErrPromptTooLong,
//     trace.ErrNotFound, model.ErrWrongWeights, checkpoint.ErrCorrupt) mean the
//     same behind HTTP. [IsFault] tells what was wrong with the request from faults
//     of the machinery, after which it may be asked again.
//   - A peer that hangs is noticed. While a request is outstanding the client
//     asks the peer's /healthz on connections of their own; when none answers for
//     [health.Patience], the request ends with [ErrUnresponsive], however long a
//     healthy sampler might have taken for it.
//   - Who sets Emit hears of each token as soon as the sampler has it. What was
//     heard is what the reply says, or the request fails; a stream that breaks off
//     is a fault.
//   - With a [Log], every completed generation is on record before its reply
//     leaves, or the end of its stream, whatever becomes of it.
package remote
