package trace

// Attributes of a span that the receiver adds where a span tells of a model call but
// names no reply of ours: fingerprints of what was said, by which the call is found.
// The receiver replaces whatever an agent sends under these names.
const (
	InstructionsFingerprint = "fulgurite.told.instructions" // system messages; absent if the span tells none
	DialogFingerprint       = "fulgurite.told.dialog"       // the other messages of the request
	ReplyFingerprint        = "fulgurite.told.reply"
)
