package tokenizer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

var _ tokenizer.Tokenizer = tokenizer.Bytes{}

func TestTheVocabularyIsPinned(t *testing.T) {
	t.Parallel()
	var v tokenizer.Bytes
	require.Equal(t, 288, v.VocabSize())
	var names []string
	for id := range int32(34) {
		names = append(names, v.Name(id))
	}
	require.Empty(t, cmp.Diff([]string{
		"<pad>", "<system>", "<user>", "<assistant>", "<tool>", "<call>", "<arg>", "<end>", "<tools>",
		"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "+", "-", "*", "/", "(", ")", "=", ".", " ", ",", ":", "?", "0x0a",
		"0x00", "0x01",
	}, names))
	require.Equal(t, "a", v.Name(32+'a'))
	require.Equal(t, "0xff", v.Name(287))
	require.Equal(t, "<288?>", v.Name(288))
	require.Equal(t, "<-1?>", v.Name(-1))
}

func TestAnyBytesComeBackAndNeverBecomeSpecial(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var v tokenizer.Bytes
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "unicode") {
			text = rapid.String().Draw(t, "text")
		}
		ids := v.Encode(text)
		require.Equal(t, text, v.Decode(ids))
		for _, id := range ids {
			require.False(t, v.Special(id))
			require.Less(t, int(id), v.VocabSize())
		}
	})
}

func TestEveryTokenThatIsNotSpecialIsOneByte(t *testing.T) {
	t.Parallel()
	var v tokenizer.Bytes
	seen := map[string]int{}
	for id := range int32(v.VocabSize()) {
		text := v.Decode([]int32{id})
		if v.Special(id) {
			require.Empty(t, text)
			continue
		}
		require.Len(t, text, 1)
		seen[text]++
	}
	require.Len(t, seen, 256)
}

func TestTheNamesOfSpecialTokensAreOrdinaryText(t *testing.T) {
	t.Parallel()
	var v tokenizer.Bytes
	require.Equal(t, "<end>", v.Decode(v.Encode("<end>")))
	require.NotContains(t, v.Encode("<end><user>"), tokenizer.End)
}

func TestArithmeticIsOneTokenPerCharacter(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int32{10, 11, 19, 16, 21, 12}, tokenizer.Bytes{}.Encode("12+7*3"))
}

func TestIdsOutsideTheVocabularyHaveNoText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1", tokenizer.Bytes{}.Decode([]int32{-5, 10, 288, 1 << 30}))
}
