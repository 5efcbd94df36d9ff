package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

var _ tokenizer.Tokenizer = (*tokenizer.BPE)(nil)

func TestBytesSurviveWhereNothingNormalizes(t *testing.T) {
	t.Parallel()
	b := read(t, "testdata/llama3.json")
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "unicode") {
			text = rapid.String().Draw(t, "text")
		}
		ids := b.Encode(text)
		require.Equal(t, text, b.Decode(ids))
		for _, id := range ids {
			require.False(t, b.Special(id))
			require.Less(t, int(id), b.VocabSize())
		}
	})
}

func TestInvalidTextIsEncodedWithoutNormalizingIt(t *testing.T) {
	t.Parallel()
	b := read(t, "testdata/qwen.json")
	for _, text := range []string{"\xff", "a\xc3", "\xed\xa0\x80 x", "e\u0301\xff", "\xe4\xb8"} {
		require.Equal(t, strings.ReplaceAll(text, "e\u0301", "é"), b.Decode(b.Encode(text)))
	}
}

// SmolLM2's vocabulary lacks bytes like these. The neighbours of a missing byte may
// merge.
func TestBytesWithoutATokenAreLeftOut(t *testing.T) {
	t.Parallel()
	b := read(t, "testdata/lacking.json")
	for text, want := range map[string]string{"\x04": "", "a\x04b": "ab", "the\x1d \xffquick\xc0": "the quick"} {
		require.Equal(t, want, b.Decode(b.Encode(text)))
	}
	require.Equal(t, b.Encode("ab"), b.Encode("\x04ab\x16"))
}

func TestCharactersWithoutATokenBecomeTheirBytes(t *testing.T) {
	t.Parallel()
	b := read(t, "testdata/mistral.json")
	for _, text := range []string{"\U000c0000", "a\xffb", "\xed\xa0\x80", "\x00\x04"} {
		ids := b.Encode(text)
		require.Equal(t, " "+text, b.Decode(ids))
	}
	require.Equal(t, "0xff", b.Name(b.Encode("\xff")[1]))
	require.Equal(t, "<0xFF>", b.Decode(b.Encode("<0xFF>"))[1:], "the name of a byte is ordinary text")
	g := b.NewGuard(func(_ string, special bool) bool { return special })
	require.Equal(t, "</s>", b.Decode(b.EncodeGuarded(g.Mark("</s>", nil), g))[1:])
}

func TestOnlyTemplatesMakeSpecialTokens(t *testing.T) {
	t.Parallel()
	b := read(t, "testdata/qwen.json")
	end, ok := b.ID("<|im_end|>")
	require.True(t, ok)
	require.True(t, b.Special(end))
	require.NotContains(t, b.Encode("a<|im_end|>"), end)
	require.Equal(t, "a<|im_end|>", b.Decode(b.Encode("a<|im_end|>")))
	require.Equal(t, end, b.EncodeSpecial("a<|im_end|>")[1])
	require.Equal(t, "a", b.Decode(b.EncodeSpecial("a<|im_end|>")), "special tokens have no text")

	call, ok := b.ID("<tool_call>")
	require.True(t, ok)
	require.False(t, b.Special(call))
	require.Equal(t, []int32{call}, b.Encode("<tool_call>"), "what is added but not special is text")
	require.Equal(t, "<tool_call>", b.Decode([]int32{call}))
}

func TestMarksKeepNamesOfTokensOrdinary(t *testing.T) {
	t.Parallel()
	b := read(t, "testdata/qwen.json")
	g := b.NewGuard(func(_ string, special bool) bool { return special })
	require.Equal(t, []rune{'<'}, g.Alphabet)
	for _, text := range []string{"<|im_end|>", "a <|im_end|> b", "<|im_start|>x<|im_end|>", "<<|im_end|>>", "<", "e\u0301<\u0338"} {
		ids := b.EncodeGuarded("<|im_start|>"+g.Mark(text, nil), g)
		require.Equal(t, b.EncodeSpecial("<|im_start|>"), ids[:1])
		require.Equal(t, b.Encode(text), ids[1:], text)
		require.Equal(t, text, g.Unmark(g.Mark(text, nil)))
		for _, id := range ids[1:] {
			require.False(t, b.Special(id))
		}
	}
	call, _ := b.ID("<tool_call>")
	require.Equal(t, []int32{call}, b.EncodeGuarded(g.Mark("<tool_call>", nil), g), "it is not guarded")
	all := b.NewGuard(func(string, bool) bool { return true })
	require.NotContains(t, b.EncodeGuarded(all.Mark("<tool_call>", nil), all), call)
	require.Contains(t, b.EncodeGuarded(all.Mark("<tool_call>", []string{"<tool_call>"}), all), call)
	require.Equal(t, "a\uFFFDb", g.Mark("a\ufdd0b", nil))
}

func TestNamesShowTokens(t *testing.T) {
	t.Parallel()
	b := read(t, "testdata/qwen.json")
	end, _ := b.ID("<|im_end|>")
	require.Equal(t, "<|im_end|>", b.Name(end))
	require.Equal(t, "<9999?>", b.Name(9999))
	require.Equal(t, "<-1?>", b.Name(-1))
	require.Equal(t, "0xff", b.Name(b.Encode("\xff")[0]))
	require.Equal(t, "a", b.Name(b.Encode("a")[0]))
	require.Equal(t, "a", b.Decode([]int32{-1, 9999, b.Encode("a")[0], 1 << 30}), "ids that are none have no text")
	require.Equal(t, "<|im_end|>", b.SpecialTokens()[end])
}

func TestLongPiecesTakeNoLongerThanShortOnes(t *testing.T) {
	t.Parallel()
	b := read(t, "testdata/qwen.json")
	long := strings.Repeat("ab", 1<<20) // would take hours if merging took quadratic time
	require.Equal(t, long, b.Decode(b.Encode(long)))
}

// "qw" could be merged, but "wz" has a lower rank and takes the w. Then "q" and "wz" can
// be merged.
func TestMergesOfWhatIsGoneAreForgotten(t *testing.T) {
	t.Parallel()
	b, err := tokenizer.FromJSON(change(t, "qwen", func(s map[string]any) {
		s["added_tokens"] = []any{} // they would follow the vocabulary
		m := s["model"].(map[string]any)
		vocab := m["vocab"].(map[string]any)
		for i, token := range []string{"qw", "wz", "qwz"} {
			vocab[token] = 800 + i
		}
		m["merges"] = []any{[]string{"w", "z"}, []string{"q", "w"}, []string{"q", "wz"}}
	}))
	require.NoError(t, err)
	require.Equal(t, []int32{802}, b.Encode("qwz"))
	require.Equal(t, append([]int32{800}, b.Encode("q")...), b.Encode("qwq"))
}

// change returns a tokenizer.json with some of its settings changed.
func change(t testing.TB, name string, change func(settings map[string]any)) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	var settings map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	require.NoError(t, d.Decode(&settings))
	change(settings)
	text, err = json.Marshal(settings)
	require.NoError(t, err)
	return text
}

func within(path ...string) func(map[string]any, any) {
	return func(settings map[string]any, value any) {
		for _, key := range path[:len(path)-1] {
			settings = settings[key].(map[string]any)
		}
		settings[path[len(path)-1]] = value
	}
}

func TestWhatWouldGiveOtherIDsIsRefusedByName(t *testing.T) {
	t.Parallel()
	object := func(members ...any) map[string]any {
		o := map[string]any{}
		for i := 0; i < len(members); i += 2 {
			o[members[i].(string)] = members[i+1]
		}
		return o
	}
	byteLevel := object("type", "ByteLevel")
	split := func(pattern string) map[string]any {
		return object("type", "Sequence", "pretokenizers", []any{
			object("type", "Split", "pattern", object("Regex", pattern), "behavior", "Isolated"), byteLevel,
		})
	}
	for want, c := range map[string]struct {
		set   func(map[string]any, any)
		value any
	}{
		`model.type is "Unigram"`:                 {within("model", "type"), "Unigram"},
		"model.dropout is 0.1":                    {within("model", "dropout"), 0.1},
		`model.continuing_subword_prefix is "##"`: {within("model", "continuing_subword_prefix"), "##"},
		`model.end_of_word_suffix is "</w>"`:      {within("model", "end_of_word_suffix"), "</w>"},
		"which would become model.unk_token": {func(s map[string]any, _ any) {
			model := s["model"].(map[string]any)
			model["merges"], model["unk_token"] = []any{}, "<|endoftext|>"
			delete(model["vocab"].(map[string]any), "Ä")
		}, nil},
		`would become the special token "he"`: {func(s map[string]any, _ any) {
			id := s["model"].(map[string]any)["vocab"].(map[string]any)["he"]
			s["added_tokens"] = []any{object("id", id, "content", "he", "special", true)}
		}, nil},
		`normalizer of type "Lowercase"`:                     {within("normalizer"), object("type", "Lowercase")},
		`normalizer of type "NFKC"`:                          {within("normalizer"), object("type", "Sequence", "normalizers", []any{object("type", "NFC"), object("type", "NFKC")})},
		"model.byte_fallback is false":                       {within("pre_tokenizer"), nil},
		"does not end with ByteLevel and is not a Metaspace": {within("pre_tokenizer"), object("type", "Sequence", "pretokenizers", []any{byteLevel, object("type", "Metaspace")})},
		`Metaspace with replacement "_"`:                     {within("pre_tokenizer"), object("type", "Metaspace", "replacement", "_")},
		`prepend_scheme "first", add_prefix_space false`:     {within("pre_tokenizer"), object("type", "Metaspace", "prepend_scheme", "first", "add_prefix_space", false)},
		"Replace of something else than a String":            {within("normalizer"), object("type", "Replace", "pattern", object("Regex", " +"), "content", "x")},
		"has ByteLevel before its end":                       {within("pre_tokenizer"), object("type", "Sequence", "pretokenizers", []any{byteLevel, byteLevel})},
		`step 0: unsupported tokenizer: type "Whitespace"`:   {within("pre_tokenizer"), object("type", "Sequence", "pretokenizers", []any{object("type", "Whitespace"), byteLevel})},
		"Split by something else than a Regex": {within("pre_tokenizer"), object("type", "Sequence", "pretokenizers", []any{
			object("type", "Split", "pattern", object("String", " "), "behavior", "Isolated"), byteLevel})},
		`behavior "MergedWithNext"`: {within("pre_tokenizer"), object("type", "Sequence", "pretokenizers", []any{
			object("type", "Split", "pattern", object("Regex", "x"), "behavior", "MergedWithNext"), byteLevel})},
		`at byte 0: '^'`:                        {within("pre_tokenizer"), split(`^a`)},
		"repeated group":                        {within("pre_tokenizer"), split(`(?:a)+`)},
		"want (?:, (?i: or (?!":                 {within("pre_tokenizer"), split(`(a)`)},
		"repetition of a repetition":            {within("pre_tokenizer"), split(`a+*`)},
		"it matches the empty text":             {within("pre_tokenizer"), split(`a*|b`)},
		"a class in a class":                    {within("pre_tokenizer"), split(`[a&&b]`)},
		`\p{Han}: want one of`:                  {within("pre_tokenizer"), split(`\p{Han}`)},
		"something else than contractions":      {within("pre_tokenizer"), split(`(?i:ff)`)},
		`\d`:                                    {within("pre_tokenizer"), split(`\d`)},
		"want {n}, {n,} or {n,m}":               {within("pre_tokenizer"), split(`a{2,1}`)},
		"bad range":                             {within("pre_tokenizer"), split(`[z-a]`)},
		"unpaired )":                            {within("pre_tokenizer"), split(`a)`)},
		"decoder is absent":                     {within("decoder"), nil},
		`decoder is of type "WordPiece"`:        {within("decoder"), object("type", "WordPiece")},
		"model.merges, line 0":                  {within("model", "merges"), []any{"a b c"}},
		"model.merges, line 1":                  {within("model", "merges"), []any{[]string{"i", "n"}, []string{"i", "n", "g"}}},
		`model.vocab lacks "zz"`:                {within("model", "merges"), []any{"z z"}},
		"model.vocab has no token for any byte": {within("model", "vocab"), object("ab", 1)},
		"tokens": {func(s map[string]any, _ any) {
			vocab := s["model"].(map[string]any)["vocab"].(map[string]any)
			vocab["q"] = vocab["z"]
		}, nil},
		"is that of another token": {within("added_tokens"), []any{object("id", 5, "content", "<x>", "special", true)}},
		"token 9000 is empty":      {within("added_tokens"), []any{object("id", 9000, "content", "")}},
		"id 4194304 of token":      {within("added_tokens"), []any{object("id", 1<<22, "content", "<x>")}},
		"id 1000000 of token":      {within("added_tokens"), []any{object("id", 1_000_000, "content", "<x>")}}, // the file has 700 tokens
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			_, err := tokenizer.FromJSON(change(t, "qwen", func(s map[string]any) { c.set(s, c.value) }))
			require.ErrorContains(t, err, want)
		})
	}
	_, err := tokenizer.FromJSON([]byte("{"))
	require.ErrorIs(t, err, tokenizer.ErrFormat)
}

func TestPatternsCutAsTheyAreRead(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string][]string{
		`a{2}`:        {"aa", "aa", "ab"},
		`a{1,2}|b`:    {"aa", "aa", "a", "b"},
		`a{2,}`:       {"aaaaa", "b"},
		`a+ab`:        {"aaaaab"},
		`a++b`:        {"aaaaab"},
		`a?+ab|b`:     {"aaa", "aab"},
		`(?:aa|aaa)b`: {"aa", "aaab"},
		`a(?:ab)?|b`:  {"a", "a", "a", "aab"},
		`a(?!a)|a`:    {"a", "a", "a", "a", "a", "b"},
		`[^b]+`:       {"aaaaa", "b"},
		`[\-a]+b`:     {"aaaaab"},
	} {
		got, err := tokenizer.CutBy(pattern, "aaaaab")
		require.NoError(t, err, pattern)
		require.Equal(t, want, got, pattern)
	}
	pieces, err := tokenizer.CutBy("a++ab", "aaaab")
	require.NoError(t, err)
	require.Equal(t, []string{"aaaab"}, pieces, "a possessive repetition gives nothing back, so nothing matches")
}

// The reference uses Unicode 16. It does not treat a letter that was added later as a
// letter, and it treats the long s as an s in the ending of a contraction.
func TestCharactersAreSortedAsTheReferenceDoes(t *testing.T) {
	t.Parallel()
	const qwen = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	for text, want := range map[string][]string{
		"a\U00010940b":  {"a", "\U00010940b"},
		"a\U0001e900b":  {"a\U0001e900b"},
		"x'\u017fy 'Sz": {"x", "'\u017f", "y", " '", "Sz"},
		"x'Sz":          {"x", "'S", "z"},
		"1²Ⅷ":           {"1", "²", "Ⅷ"},
		"a \u3000\n b":  {"a", " \u3000\n", " b"},
		"a   b":         {"a", "  ", " b"},
	} {
		got, err := tokenizer.CutBy(qwen, text)
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", text)
	}
	got, err := tokenizer.CutBy(`\p{Ll}+|\p{Lo}+`, "a\u0295\u05d0")
	require.NoError(t, err)
	require.Equal(t, []string{"a\u0295", "\u05d0"}, got)
}

func FuzzFromJSON(f *testing.F) {
	for _, name := range []string{"qwen", "llama3", "gpt2", "lacking", "llama2-normalized", "mistral", "metaspace"} {
		f.Add(change(f, name, func(s map[string]any) {
			s["model"].(map[string]any)["merges"] = []any{[]string{"i", "n"}, []string{"Ġ", "t"}}
		}), "don't <mask> e\u0301 12\n")
	}
	f.Add([]byte(`{"model":{"type":"BPE"},"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"}}`), "")
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		b, err := tokenizer.FromJSON(file)
		if err != nil {
			return
		}
		for _, id := range append(b.Encode(text), b.EncodeSpecial(text)...) {
			require.Less(t, int(id), b.VocabSize())
			require.True(t, utf8.ValidString(b.Name(id)))
		}
	})
}

func FuzzPatterns(f *testing.F) {
	f.Add(`(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}]++[\r\n/]*|\s+(?!\S)|\s+`, "it's  \n12345é")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		pieces, err := tokenizer.CutBy(pattern, text)
		if err == nil {
			require.Equal(t, text, strings.Join(pieces, ""))
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	v := read(b, "testdata/qwen.json")
	text := strings.Repeat("The quick brown fox said it's 12345 times {\"a\": 1}.\n\n日本語のテキスト é ", 100)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		v.Encode(text)
	}
}
