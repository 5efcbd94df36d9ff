package schema_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog/schema"
	"github.com/fulgurite/fulgurite/model"
)

var _ model.Constraint = (*schema.Constraint)(nil)

// pieces returns the tokens of a small vocabulary: all bytes, some texts, one of them
// twice, and a special token.
func pieces() [][]byte {
	all := [][]byte{{}}
	for b := range 256 {
		all = append(all, []byte{byte(b)})
	}
	for _, text := range []string{`{"`, `":`, `": "`, `", "`, `"}`, `}}`, `a`, `ab`, `abc`, `é`, "é\xe2", "\x82\xac", `\u00`, `\"`, `12`, `.5`, `null`, `nullx`, ` `, `  `, `",`, `""`, `[]`, `],[`, `é"}`} {
		all = append(all, []byte(text))
	}
	return all
}

func TestATokenIsAllowedIfAllOfItsBytesAre(t *testing.T) {
	t.Parallel()
	v := schema.NewVocabulary(pieces())
	rapid.Check(t, func(t *rapid.T) {
		b := schema.NewBuilder()
		value, err := b.Value([]byte(drawSchema(t).schema))
		require.NoError(t, err)
		g := b.Grammar(b.Sequence(value, b.Special(0)))
		c, m := schema.NewConstraint(g, v), g.Matcher()
		for range rapid.IntRange(0, 60).Draw(t, "tokens") {
			set := model.NewTokenSet(v.Size())
			require.True(t, c.Allowed(set))
			var all []int32
			for id, bytes := range pieces() {
				one, fits := m, true
				for _, b := range bytes {
					fits = fits && one.Step(b)
				}
				if id == 0 {
					fits = one.StepSpecial(0)
				}
				require.Equal(t, fits, set.Has(int32(id)), "token %q", bytes)
				if fits {
					all = append(all, int32(id))
				}
			}
			token := rapid.SampledFrom(all).Draw(t, "token")
			require.Equal(t, token == 0, c.Accept(token))
			if token == 0 {
				return
			}
			for _, b := range pieces()[token] {
				m.Step(b)
			}
		}
	})
}

func TestAGrammarServesManyRepliesAtOnce(t *testing.T) {
	t.Parallel()
	g, v := compile(t, `{}`), schema.NewVocabulary(pieces())
	var group sync.WaitGroup
	for seed := range uint64(8) {
		group.Go(func() {
			c, random := schema.NewConstraint(g, v), rand.New(rand.NewPCG(seed, 0))
			for range 50 {
				set := model.NewTokenSet(v.Size())
				c.Allowed(set)
				if token := random.Int32N(int32(v.Size())); set.Has(token) {
					c.Accept(token)
				}
			}
		})
	}
	group.Wait()
}

func TestAConstraintAndItsCloneGoOnSeparately(t *testing.T) {
	t.Parallel()
	v := schema.NewVocabulary(pieces())
	c := schema.NewConstraint(compile(t, `{"enum":["a","b"]}`), v)
	c.Accept('"' + 1)
	clone := c.Clone()
	require.False(t, c.Accept('a'+1))
	require.False(t, clone.Accept('b'+1))
	require.True(t, c.Accept('"'+1))
	require.True(t, clone.Accept('"'+1))
}

// large returns a vocabulary with the size and shape of a published model's: bytes, then
// words, most of them with a space before, numbers and punctuation.
func large() *schema.Vocabulary {
	random := rand.New(rand.NewPCG(1, 2))
	tokens := make([][]byte, 0, 150_000)
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for _, open := range []string{`"`, `{"`, `",`, `":`, `"}`, `"]`, `","`, `": "`, `", "`, `"},{"`} {
		tokens = append(tokens, []byte(open))
	}
	for len(tokens) < cap(tokens) {
		var word []byte
		if random.IntN(2) == 0 {
			word = append(word, ' ')
		}
		for range 2 + random.IntN(9) {
			// Frequent letters more often, so that words share beginnings.
			word = append(word, "etaoinshrdlucmfwypvbgkjqxz"[random.IntN(26)*random.IntN(26)/26])
		}
		if random.IntN(40) == 0 {
			word = append(word, `"`...)
		}
		if random.IntN(10) == 0 {
			word = []byte(string([]rune{rune(0x4e00 + random.IntN(20000)), rune(0x4e00 + random.IntN(20000))}))
		}
		tokens = append(tokens, word)
	}
	return schema.NewVocabulary(tokens)
}

// BenchmarkMask measures a step in a vocabulary of 150,000 tokens: "cold" is the
// first time a state is met, "warm" any later time.
func BenchmarkMask(b *testing.B) {
	v := large()
	set := model.NewTokenSet(v.Size())
	const person = `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"tag":{"type":"string","maxLength":40}},"required":["name","age","tag"]}`
	for _, c := range []struct{ name, before string }{
		{"object", `{`}, {"string", `{"name":"ab`}, {"integer", `{"name":"","age":1`}, {"short string", `{"name":"","age":1,"tag":"ab`},
	} {
		b.Run(c.name+" cold", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				g, err := schema.Compile([]byte(person))
				require.NoError(b, err)
				k := schema.NewConstraint(g, v)
				for _, token := range []byte(c.before) {
					k.Accept(int32(token))
				}
				b.StartTimer()
				k.Allowed(set)
			}
		})
		b.Run(c.name+" warm", func(b *testing.B) {
			g, err := schema.Compile([]byte(person))
			require.NoError(b, err)
			k := schema.NewConstraint(g, v)
			for _, token := range []byte(c.before) {
				k.Accept(int32(token))
			}
			for b.Loop() {
				k.Allowed(set)
			}
		})
	}
	b.Run("whole reply", func(b *testing.B) {
		const reply = `{"name": "Ada Lovelace of London", "age": 36, "tag": "first"}`
		for b.Loop() {
			g, err := schema.Compile([]byte(person))
			require.NoError(b, err)
			k := schema.NewConstraint(g, v)
			for _, token := range []byte(reply) {
				k.Allowed(set)
				k.Accept(int32(token))
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(reply)), "µs/step")
	})
}

func ExampleCompile() {
	g, err := schema.Compile([]byte(`{"type":"object","properties":{"n":{"type":"integer","maximum":9}},"required":["n"]}`))
	if err != nil {
		panic(err)
	}
	m := g.Matcher()
	for _, b := range []byte(`{"n":7`) {
		m.Step(b)
	}
	fmt.Println(m.Complete(), m.Allowed().Has('}'), m.Allowed().Has('1'))
	// Output: false true false
}
