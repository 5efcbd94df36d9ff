package dialog

import "errors"

// PromptEncoder is a Codec whose texts have special tokens, by the names that the model
// was published with. Text that people, tools and templates' variables bring into a dialog
// never becomes one; a prompt that a program renders itself is meant to.
type PromptEncoder interface {
	Codec
	// EncodePrompt returns the tokens of a whole prompt, as the model's own tokenizer
	// makes them: with special tokens where the text names them, and those that it puts
	// around every text; if the text begins with those, it gets them once. The error
	// wraps ErrPrompt.
	EncodePrompt(text string) ([]int32, error)
}

// ErrPrompt is wrapped when the tokens of a text are not known.
var ErrPrompt = errors.New("the tokens of this text are not known")
