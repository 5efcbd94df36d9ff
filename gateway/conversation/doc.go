// Package conversation holds the dialogs of attempts, and makes their model calls.
//
// A [Conversation] is what a gateway knows of an attempt: its recorded calls as a tree of
// dialogs, read from the journal and appended to it, and its calls in flight. One lock
// guards all of it, and never leaves the package. A [Maker] opens conversations, and makes
// calls outside of them, which are not recorded.
//
// # What a request is
//
// A conversation answers three questions about a [Request]. Which call is it? Its
// canonical form has a key that is equal for equal requests. What does it continue? The
// prompt begins with the exact tokens of a recorded call, and only what was said since is
// tokenized. Was it answered before? Either this attempt has recorded calls of the same
// request, or an earlier attempt has sampled one, which is replayed.
//
// # How it gets its calls
//
// A request gets one [Slot] for each choice that it asks for. A slot has a recorded call,
// or waits for a pending one. If the request repeats one in flight, the slot joins the
// pending call of that one; otherwise it reserves a new pending call.
//
// The pending calls of a request are started once each of its choices has a call. A
// pending call is sampled, recorded and completed even if its requests no longer wait. It
// is abandoned only if all of them left before it was sampled, and none of them had begun
// to read it.
//
// When slots are released, the request says whether the reply was delivered. A call whose
// reply was not delivered answers the next equal request. A client that closes a stream
// after it has read a part of it has got its reply: the next equal request is another
// sample, and waits until the closed call is on record.
//
// The package knows nothing of HTTP. It starts no goroutine that outlives the request
// that began it. Its errors are plain: [Fault], [LimitError], [FormError], those of trace,
// of model and of dialog, and wire.Failure where a field of the request is to blame.
package conversation
