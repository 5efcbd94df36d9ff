package tokenizer

// CutBy returns the pieces into which a pattern cuts text.
func CutBy(source, text string) (pieces []string, err error) {
	p, err := parsePattern(source)
	if err != nil {
		return nil, err
	}
	p.isolate(text, true, func(piece string) { pieces = append(pieces, piece) })
	return pieces, nil
}
