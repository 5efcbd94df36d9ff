package tokenizer_test

import (
	"fmt"
	"os"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// What a user writes never becomes a special token; a template's text may.
func ExampleFromJSON() {
	text, err := os.ReadFile("testdata/qwen.json")
	if err != nil {
		panic(err)
	}
	bpe, err := tokenizer.FromJSON(text)
	if err != nil {
		panic(err)
	}
	for _, ids := range [][]int32{bpe.Encode("hi<|im_end|>"), bpe.EncodeSpecial("hi<|im_end|>")} {
		fmt.Printf("%d tokens, the last special: %v, text %s\n", len(ids), bpe.Special(ids[len(ids)-1]), bpe.Decode(ids))
	}
	// Output:
	// 11 tokens, the last special: false, text hi<|im_end|>
	// 3 tokens, the last special: true, text hi
}

// The vocabulary of the built-in model: one token for each byte.
func ExampleBytes() {
	ids := tokenizer.Bytes{}.Encode("2+3")
	fmt.Println(ids, tokenizer.Bytes{}.Decode(ids))
	// Output:
	// [11 19 12] 2+3
}
