package delta_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/store/delta"
)

func TestAnyTargetComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Few letters, so that much is found and found by chance.
		part := rapid.SliceOfN(rapid.SampledFrom([]byte("ab\x00\xff")), 0, 200)
		parts := rapid.SliceOfN(part, 1, 4).Draw(t, "parts")
		base := bytes.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 8).Draw(t, "base"), part.Draw(t, "glue"))
		target := bytes.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 8).Draw(t, "target"), part.Draw(t, "other glue"))
		from := rapid.IntRange(0, len(base)).Draw(t, "from")
		got, err := delta.Decode(base, delta.Encode(base, from, target))
		require.NoError(t, err)
		require.Equal(t, string(target), string(got))
	})
}

func TestADeltaIsAboutAsLongAsWhatIsNew(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	word := func() string { return fmt.Sprintf("%x ", random.Uint64()) }
	text := func(words int) string {
		var b strings.Builder
		for range words {
			b.WriteString(word())
		}
		return b.String()
	}
	system, first, tools, reply := text(500), text(50), text(500), text(20)
	response := "{" + reply + "}"
	request := system + first + tools
	for name, target := range map[string]string{
		"the same":                      request,
		"a turn more":                   system + first + "[" + reply + "]" + text(5) + tools,
		"another word at the beginning": word() + request,
		"another word within":           system[:100] + word() + system[100:] + first + tools,
		"tools before the dialog":       tools + system + first,
		"thoughts left out":             system + first[600:] + tools,
	} {
		d := delta.Encode([]byte(response+request), len(response), []byte(target))
		require.Less(t, len(d), 250, name)
	}
	require.Less(t, len(delta.Encode([]byte(text(100)), 0, []byte(request))), len(request)+20, "nothing in common")
}

func FuzzDecodeRefusesWhatIsNoDelta(f *testing.F) {
	f.Add([]byte("base"), []byte{1, 'x', 4, 0})
	f.Add([]byte("base"), []byte{0, 200, 200, 200, 200, 200, 200, 200, 200, 200, 1})
	f.Fuzz(func(t *testing.T, base, d []byte) {
		if out, err := delta.Decode(base, d); err != nil {
			require.ErrorIs(t, err, delta.ErrDelta)
		} else {
			require.LessOrEqual(t, len(out), len(base)*len(d)+len(d))
		}
	})
}
