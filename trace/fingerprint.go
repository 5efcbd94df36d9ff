package trace

// Attributes that the receiver adds to a span of a model call that names no reply of
// ours: fingerprints of the dialog, by which the call is found. The receiver replaces any
// values that an agent sends under these names.
const (
	InstructionsFingerprint = "fulgurite.told.instructions" // system messages; absent if there are none
	DialogFingerprint       = "fulgurite.told.dialog"       // the other messages of the request
	ReplyFingerprint        = "fulgurite.told.reply"
)
