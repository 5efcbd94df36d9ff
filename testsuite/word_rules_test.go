package testsuite_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// privateWords returns private metaphors that names of files and identifiers must not
// use, with the words to use instead. docs/architecture.md has the glossary.
func privateWords() map[string]string {
	words := map[string]string{}
	for list, use := range map[string]string{
		"seat seats":                       "slot",
		"board boards":                     "admit",
		"occupy occupies":                  "claim",
		"vacate vacates":                   "release",
		"trip trips flight flights":        "pending call",
		"take-off fly land lands":          "reserve, start, sample, complete",
		"telling voice voices":             "stream writer",
		"aside":                            "what it is: a goroutine, a quarantine",
		"vigil vigils pulse":               "prober, keep alive",
		"brief":                            "job environment, truncate",
		"excerpt excerpts":                 "truncate",
		"errand errands":                   "group task",
		"elsewhere":                        "external agent",
		"wave waves":                       "step groups",
		"refill":                           "replacement of dynamic sampling",
		"library shelf shelves volume":     "run cache",
		"course courses":                   "update plan, scenario",
		"books":                            "ledger",
		"court witness world stage scene":  "test environment, or what it is",
		"keeper strike strikes blow blows": "fault injector, fault",
		"calm ripe fickle moody":           "baseline, what it is",
		"outset unstick settle settles":    "what it is",
		"laboratory":                       "compare",
		"standing stands":                  "promoted, recorded, remaining",
		"told tell tells":                  "sent, asked, streamed, or what it is",
		"hear hears heard":                 "parse, received",
		"utterance utterances":             "turn, its parts",
		"patience":                         "limit, timeout, wait",
	} {
		for word := range strings.FieldsSeq(list) {
			words[word] = use
		}
	}
	return words
}

// privateInComments returns those private words that have no ordinary meaning here, so
// that comments must not use them either.
func privateInComments() map[string]string {
	words := map[string]string{}
	for word := range strings.FieldsSeq("seat seats vacate vacates vigil vigils errand errands shelf shelves " +
		"fickle moody unstick laboratory utterance utterances") {
		words[word] = privateWords()[word]
	}
	return words
}

// ordinary matches common phrases that contain some of these words.
var ordinary = regexp.MustCompile(` (round trip|in flight|single flight) `)

// owners returns the packages in which a word is a technical term.
func owners() map[string][]string {
	return map[string][]string{
		"brief":   {"activities"}, // a field of a result that histories hold
		"excerpt": {"gateway/conversation"},
		"wave":    {"model/gomlx"}, // the wave of a sine
		// an exported name that users' code may have
		"patience": {"internal/health", "model/remote", "model/native/packed", "page"},
		// of a curriculum, as papers call it
		"stage": {"spec", "record", "internal/curriculum", "cmd/fulgurite/internal/plan", "testsuite/chaos/checker"},
	}
}

func TestNamesAreOrdinaryWords(t *testing.T) {
	t.Parallel()
	words, seen := privateWords(), map[string]bool{}
	for _, s := range sources(t) {
		report := func(name string) {
			for _, word := range private(name, words) {
				if key := s.String() + name + word; !seen[key] && !slices.Contains(owners()[word], s.folder) {
					seen[key] = true
					t.Errorf("%s: %s speaks of %q: say %s", s, name, word, words[word])
				}
			}
		}
		report(strings.TrimSuffix(s.name, ".go"))
		others := map[*ast.Ident]bool{} // names that belong to other packages
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				others[n.Sel] = true
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok {
					others[key] = true
				}
			case *ast.FuncDecl:
				if s.isTest() && strings.HasPrefix(n.Name.Name, "Test") {
					others[n.Name] = true // a sentence
				}
			case *ast.Ident:
				if !others[n] {
					report(n.Name)
				}
			}
			return true
		})
	}
}

func TestCommentsAreOrdinaryWords(t *testing.T) {
	t.Parallel()
	words := privateInComments()
	for word, use := range words {
		require.NotEmpty(t, use, "%s is not among the private words", word)
	}
	for _, s := range sources(t) {
		if s.String() == "testsuite/word_rules_test.go" {
			continue // this file lists the words
		}
		for _, group := range s.file.Comments {
			for word := range strings.FieldsFuncSeq(strings.ToLower(group.Text()), func(r rune) bool { return !unicode.IsLetter(r) }) {
				if use, ok := words[word]; ok {
					t.Errorf("%s: a comment speaks of %q: say %s", s, word, use)
				}
			}
		}
	}
}

func TestPrivateWordsAreNoticed(t *testing.T) {
	t.Parallel()
	words := privateWords()
	for name, want := range map[string][]string{
		"seat": {"seat"}, "freeSeats": {"seats"}, "takeOff": {"take-off"}, "HTTPVoice": {"voice"}, "wave_test": {"wave"},
		"roundTrip": nil, "inFlight": nil, "singleflight": nil, "landscape": nil, "dashboard": nil, "Shelves2": {"shelves"},
	} {
		require.Equal(t, want, private(name, words), name)
	}
}

// private returns the words of a name that are in the list.
func private(name string, words map[string]string) []string {
	text := []rune(" ")
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) && (!unicode.IsUpper(rune(name[i-1])) || i+1 < len(name) && unicode.IsLower(rune(name[i+1]))) {
			text = append(text, ' ')
		}
		if !unicode.IsLetter(r) {
			r = ' '
		}
		text = append(text, unicode.ToLower(r))
	}
	plain := ordinary.ReplaceAllString(string(append(text, ' ')), " ")
	var found []string
	for word := range words {
		if strings.Contains(plain, " "+strings.ReplaceAll(word, "-", " ")+" ") {
			found = append(found, word)
		}
	}
	return found
}
