package tokenizer

// Byte-level vocabularies spell each byte as one printable character: printable
// bytes of Latin-1 as themselves, the others, in order, from U+0100 on.

// spelling returns the character for each byte.
func spelling() [256]rune {
	var of [256]rune
	next := rune(0x100)
	for b := range of {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			of[b] = rune(b)
			continue
		}
		of[b] = next
		next++
	}
	return of
}

// spelled returns the byte for each character.
func spelled() map[rune]byte {
	of := make(map[rune]byte, 256)
	for b, r := range spelling() {
		of[r] = byte(b)
	}
	return of
}

// unspell returns the bytes that a token's text represents. Text with a character outside
// of the alphabet is returned unchanged.
func unspell(token string, of map[rune]byte) string {
	raw := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := of[r]
		if !ok {
			return token
		}
		raw = append(raw, b)
	}
	return string(raw)
}
