package tokenizer

import (
	"fmt"
	"strconv"
)

// The special tokens of Bytes. Their ids are part of every checkpoint trained
// with it and never change.
const (
	Pad       int32 = iota // fills batches, never sampled on purpose
	System                 // begins a system turn
	User                   // begins a user turn
	Assistant              // begins an assistant turn
	ToolReply              // begins a tool's result
	ToolCall               // begins a tool call inside an assistant turn
	Argument               // stands between a tool's name and its argument
	End                    // ends a turn
	Tools                  // begins the list of tools

	firstCharacter
)

// characters lists the characters that have their own tokens, from firstCharacter on:
// those of arithmetic and the most common punctuation. A character's own token and the
// token of its byte decode to the same text.
const characters = "0123456789+-*/()=. ,:?\n"

const firstByte = firstCharacter + int32(len(characters))

// BytesSize is the number of tokens of Bytes.
const BytesSize = int(firstByte) + 256

var specialNames = [firstCharacter]string{
	"<pad>", "<system>", "<user>", "<assistant>", "<tool>", "<call>", "<arg>", "<end>", "<tools>",
}

// Bytes is a vocabulary of 288 tokens: 9 special ones, 23 characters and the 256
// bytes, which make it complete. Its zero value is ready.
type Bytes struct{}

// VocabSize returns BytesSize.
func (Bytes) VocabSize() int { return BytesSize }

// Encode writes one token for each byte of text.
func (Bytes) Encode(text string) []int32 {
	ids := make([]int32, len(text))
	for i := range len(text) {
		ids[i] = tokenOf(text[i])
	}
	return ids
}

// Decode inverts Encode.
func (Bytes) Decode(ids []int32) string {
	text := make([]byte, 0, len(ids))
	for _, id := range ids {
		switch {
		case id >= firstByte && int(id) < BytesSize:
			text = append(text, byte(id-firstByte))
		case id >= firstCharacter && id < firstByte:
			text = append(text, characters[id-firstCharacter])
		}
	}
	return string(text)
}

// Special reports whether id is a special token.
func (Bytes) Special(id int32) bool { return id >= 0 && id < firstCharacter }

// Name returns a readable name of the token id: "<user>", "7", "0x7f", or "<300?>" for an
// id outside of the vocabulary.
func (v Bytes) Name(id int32) string {
	switch {
	case v.Special(id):
		return specialNames[id]
	case id < 0 || int(id) >= BytesSize:
		return fmt.Sprintf("<%d?>", id)
	}
	if text := v.Decode([]int32{id}); text[0] < 0x80 && strconv.IsPrint(rune(text[0])) {
		return text
	}
	return fmt.Sprintf("0x%02x", v.Decode([]int32{id})[0])
}

func tokenOf(b byte) int32 {
	switch {
	case b >= '0' && b <= '9':
		return firstCharacter + int32(b-'0')
	case b >= 'A':
		return firstByte + int32(b)
	}
	for i := 10; i < len(characters); i++ {
		if characters[i] == b {
			return firstCharacter + int32(i)
		}
	}
	return firstByte + int32(b)
}

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
