// Package decode has what the decoders of all engines share. A [Front] checks requests,
// queues them and waits for their completions: it is model.Decoder and model.Scorer for
// callers. One goroutine of the engine owns the batch. It takes requests from the [Queue]
// between two steps, samples, gives each [Request] its tokens, and ends it.
//
// The package computes nothing with a model.
package decode
