// Package remote provides both ends of a sampler behind HTTP: [Server] makes a sampler of
// this process reachable, and [Client] implements [model.Sampler] with a sampler of
// another process.
//
// The protocol uses token ids, never text, so that exactly what was sampled is recorded;
// docs/formats.md describes it. It transmits everything to the bit: seeds are strings
// with their 64 bits, and floating-point numbers have as many digits as are needed to
// read the same number back.
//
// It does not choose between samplers, repeat requests or keep state: these are tasks of
// the caller and of the gateway's journal.
//
// Guarantees:
//
//   - Errors with a meaning for the caller (model.ErrPromptTooLong, record.ErrNotFound,
//     model.ErrWrongWeights, checkpoint.ErrCorrupt) have the same meaning behind HTTP.
//     [IsFault] distinguishes errors of the request from faults of the machinery, after
//     which the request may be repeated.
//   - A peer that hangs is noticed. During a request the client asks the peer's /healthz
//     on separate connections. If no answer arrives for [health.Patience], the request
//     ends with [ErrUnresponsive], however long a healthy sampler might have taken for
//     it.
//   - A caller that sets Emit receives each token as soon as the sampler has it. The
//     reply has the same tokens, or the request fails; a stream that breaks off is a
//     fault.
//   - With a [Log], every completed generation is on record before its reply, or the end
//     of its stream, is sent, whatever happens to it later.
package remote
