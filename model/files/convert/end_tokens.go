package convert

import "slices"

// endTexts lists the texts of the tokens at which llama.cpp ends a reply whatever the
// file's keys say (llama_vocab, special_eog_ids).
func endTexts() []string {
	return []string{
		"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
		"<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
		"<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
	}
}

// fillTexts lists the texts of the tokens of code models that pad a text, and that begin a
// repository and a file. llama.cpp ends a reply at one of each kind.
func fillTexts() [][]string {
	return [][]string{
		{"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"},
		{"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
		{"<|file_sep|>"},
	}
}

// endsByText reports whether llama.cpp ends a reply at the token with a text because of
// that text, in a model with the given tokens.
func endsByText(text string, tokens []string) bool {
	if slices.Contains(endTexts(), text) {
		return true
	}
	for _, kind := range fillTexts() {
		if slices.Contains(kind, text) {
			others := slices.DeleteFunc(kind, func(other string) bool { return other == text })
			return !slices.ContainsFunc(others, func(other string) bool { return slices.Contains(tokens, other) })
		}
	}
	return false
}

// lastEndText is a text that makes a token the end of a turn in a file that names none.
const lastEndText = "<｜end▁of▁sentence｜>"

// endAtTexts adds the tokens at which llama.cpp ends a reply because of their texts. Two
// families of models use an end token in the middle of a reply, and llama.cpp leaves it
// out there.
func (v *vocabulary) endAtTexts(namesTurn bool) {
	ids := map[string]int{}
	for id, text := range v.tokens {
		if _, ok := ids[text]; !ok {
			ids[text] = id
		}
	}
	has := func(texts ...string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { _, ok := ids[text]; return !ok })
	}
	end := func(text string) {
		id, ok := ids[text]
		if !ok {
			return
		}
		if v.kinds[id] == userToken {
			v.kinds[id] = controlToken // llama.cpp never finds it in what a user says
		}
		if !slices.Contains(v.stop, id) {
			v.stop = append(v.stop, id)
		}
	}
	for _, text := range endTexts() {
		switch {
		case text == "<|end|>" && (has("<|return|>", "<|call|>") || has("<|return|>", "<|calls|>") || has("<|flush|>", "<|call|>") || has("<|flush|>", "<|calls|>")):
		case text == "</s>" && has("<|tool_response>"):
		default:
			end(text)
		}
	}
	if !namesTurn {
		end(lastEndText)
	}
	for _, kind := range fillTexts() {
		for _, text := range kind {
			end(text)
		}
	}
	slices.Sort(v.stop)
}
