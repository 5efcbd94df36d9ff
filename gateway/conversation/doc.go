// Package conversation holds a gateway's knowledge of an attempt: its recorded calls as a
// tree of dialogs, read from the journal and appended to it.
//
// It answers three questions about a [Request]. Which call is it? Its [Canonical] form
// has a key that is equal for equal requests. What does it continue? [History] has the
// exact tokens to sample after, and the recorded call with which they begin. Was it
// answered before? [Attempt.Repeats] has the recorded calls of the same request, and
// [Attempt.Earlier] the call that an earlier attempt sampled for it, to be replayed.
//
// The package knows nothing of HTTP, samples nothing and starts no goroutine. Its
// errors are plain: [Fault], [LimitError], [FormError], those of trace and of dialog,
// and wire.Failure where a field of the request is to blame.
package conversation
